"""Stop this trial now? One rule per file."""
