"""Measurements: speed against named peers in one run, and the tables of the papers. Nothing here is in the wheel."""
