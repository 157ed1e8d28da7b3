"""Makes a recording small enough to be carried in the repository: every configuration stays, fewer digits do.

    python -m bench.compact --data credit.npz -o bench/recordings/credit.npz

Objectives are rounded to 0.00001. Limits are rounded up to a multiple of 0.0005, so that every checkpoint stays on its
side of any limit that is such a multiple. The seconds of a step become the mean of its block of 32 steps, so that a
training costs what it did. What simulation does not read is left out. The result is an .npz whose parts are packed by
LZMA, which `numpy.load`, and so `fw.Recording.load`, reads like any other.
"""

from __future__ import annotations

import argparse
import io
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

DIGITS = 5
LIMIT_STEPS = 2000  # a limit's steps in 1
BLOCK = 32
LAYOUT = ("names", "low", "high", "log", "integer", "config", "total_steps", "offset")
Array = NDArray[np.float64]


def compact(source: Path, target: Path, objective: str, constraint: str) -> None:
    """Write a smaller copy of a recording."""
    with np.load(source, allow_pickle=False) as file:
        arrays = {name: file[name] for name in LAYOUT}
        offset = arrays["offset"].astype(np.int64)
        arrays["offset"] = offset.astype(np.int32)
        arrays["seconds"] = _in_blocks(file["seconds"].astype(np.float64), offset).astype(np.float32)
        arrays[objective] = np.round(file[objective].astype(np.float64), DIGITS)
        arrays[constraint] = np.ceil(file[constraint].astype(np.float64) * LIMIT_STEPS) / LIMIT_STEPS
    target.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_LZMA) as packed:
        for name, array in arrays.items():
            part = io.BytesIO()
            np.lib.format.write_array(part, np.ascontiguousarray(array), allow_pickle=False)
            packed.writestr(zipfile.ZipInfo(f"{name}.npy"), part.getvalue(), zipfile.ZIP_LZMA)


def _in_blocks(seconds: Array, offset: NDArray[np.int64]) -> Array:
    """Each step's seconds as the mean of its block, blocks beginning anew with each configuration."""
    starts = np.concatenate([np.arange(first, last, BLOCK) for first, last in pairwise(offset)])
    sizes = np.diff(starts, append=len(seconds))
    means = np.add.reduceat(seconds, starts) / sizes
    return np.repeat(means, sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the recording to make small")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--objective", default="auc")
    parser.add_argument("--constraint", default="eod")
    given = parser.parse_args()
    compact(given.data, given.out, given.objective, given.constraint)
    print(f"{given.out}: {given.out.stat().st_size / 1e6:.2f} MB of {given.data.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
