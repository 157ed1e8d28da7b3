"""When to end the whole search: queries over history."""
