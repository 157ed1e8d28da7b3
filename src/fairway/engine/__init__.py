"""The machinery of a study: its log, what is replayed from it, who writes it, and the rules for every report."""
