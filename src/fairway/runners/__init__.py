"""How trials are run: in this process, or in virtual time on recorded curves."""
