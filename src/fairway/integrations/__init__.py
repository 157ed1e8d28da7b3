"""fairway inside the tools that people already use; nothing here is imported by fairway itself."""
