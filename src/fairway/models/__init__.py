"""Statistical models: arrays in, arrays out."""
