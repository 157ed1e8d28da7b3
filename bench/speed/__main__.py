"""Runs every speed benchmark: `make bench`."""

from __future__ import annotations

from bench.speed import report

if __name__ == "__main__":
    report.main()
