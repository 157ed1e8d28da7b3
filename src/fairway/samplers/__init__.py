"""Which configuration next? One sampler a file."""
