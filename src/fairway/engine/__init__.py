"""What a study is: its log, what is replayed from it, who writes it, and the rules that every report goes through."""
