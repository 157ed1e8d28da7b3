"""What runs trials: this process, threads, processes of their own, or recorded curves in virtual time."""
