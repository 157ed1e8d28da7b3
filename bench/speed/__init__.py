"""Speed, as ratios against a named peer in the same process run."""
