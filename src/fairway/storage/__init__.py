"""Where a study's log lives."""
