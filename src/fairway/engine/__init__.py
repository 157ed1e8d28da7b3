"""What a study is: its log, what folds it, who writes it, and the rules that every report goes through."""
