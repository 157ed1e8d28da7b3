"""Stop this trial now? One rule a file."""
