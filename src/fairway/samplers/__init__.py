"""Which configuration next? One sampler per file."""
