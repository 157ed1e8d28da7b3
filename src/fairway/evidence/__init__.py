"""What fresh rows say about a limit: tests that hold their level, and bounds."""
