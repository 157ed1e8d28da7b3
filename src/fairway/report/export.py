"""A study's trials as a file for other programs: CSV, JSON or Parquet.

Values stay what they are where the format can hold them. Where it cannot, or where a spreadsheet would run a text as a
formula, the file holds a harmless text, and whoever exports is told.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fairway.errors import MissingDependency, UsageError
from fairway.report import files
from fairway.text import counted, shown

_FORMULA = tuple("=+-@\t\r")  # what a spreadsheet takes for the start of one
_NUMBER = re.compile(r"-\d+([.]\d*)?(e[+-]?\d+)?", re.IGNORECASE)  # which is harmless
_EXACT = 2**53  # whole numbers up to here are the same as floats

Row = Mapping[str, Any]


def write(path: Path, rows: Sequence[Row]) -> list[str]:
    """Write rows with the same columns by the file's ending; what is different in the file, in sentences.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "trials.csv"
    ...     print(write(path, [{"loss": -0.5, "note": "=1+1"}]), path.read_text().split())
    ["1 cell began like a formula: it follows an apostrophe (')"] ['loss,note', "-0.5,'=1+1"]
    """
    kinds = {".csv": _csv, ".json": _json, ".parquet": _parquet}
    if path.suffix not in kinds:
        raise UsageError(f"{str(path)!r}: a file that ends in .csv, .json or .parquet is expected")
    content, remarks = kinds[path.suffix](rows)
    files.write(path, content)
    return remarks


def finite(value: Any) -> Any:
    """A value as JSON can hold it: infinity, NaN and paths become texts."""
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    odd = isinstance(value, Path) or isinstance(value, float) and not math.isfinite(value)
    return str(value) if odd else value


def _json(rows: Sequence[Row]) -> tuple[bytes, list[str]]:
    return (json.dumps(finite(rows), indent=1) + "\n").encode(), []


def _csv(rows: Sequence[Row]) -> tuple[bytes, list[str]]:
    defused = 0

    def cell(value: Any) -> Any:
        nonlocal defused
        if not isinstance(value, str) or not value.startswith(_FORMULA) or _NUMBER.fullmatch(value):
            return value
        defused += 1
        return f"'{value}"

    written = io.StringIO(newline="")
    writer = csv.writer(written)
    writer.writerow(cell(name) for name in (rows[0] if rows else ("number",)))
    writer.writerows([cell(value) for value in row.values()] for row in rows)
    content, remarks = _encoded(written.getvalue())
    if defused:
        began = "began like a formula: it follows" if defused == 1 else "began like formulas: they follow"
        remarks.append(f"{counted(defused, 'cell')} {began} an apostrophe (')")
    return content, remarks


def _encoded(text: str) -> tuple[bytes, list[str]]:
    r"""UTF-8, where half a character (a lone surrogate) is written as its number, such as \udc80."""
    try:
        return text.encode(), []
    except UnicodeEncodeError:
        remark = "halves of characters, which no file can hold, are written as their numbers, such as \\udc80"
        return text.encode(errors="backslashreplace"), [remark]


def _parquet(rows: Sequence[Row]) -> tuple[bytes, list[str]]:
    try:
        import pyarrow as pa  # noqa: PLC0415 - optional
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise MissingDependency("parquet needs pyarrow: pip install pyarrow") from error
    columns: dict[str, Any] = {}
    remarks: list[str] = []
    for name in rows[0] if rows else ("number",):
        values = [row[name] for row in rows]
        if not _is_of_one_kind(values):
            values = [None if value is None else json.dumps(finite(value)) for value in values]
            remarks.append(f"{shown(name, 60)} has values of several kinds, or too large: they are written as JSON")
        whole = [_whole(value, remarks) for value in values]
        key = _whole(name, remarks)
        if key in columns:
            raise UsageError(f"two columns would be named {key!r}: export to .csv or .json instead")
        columns[key] = pa.array(whole, from_pandas=False)
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes(), list(dict.fromkeys(remarks))


def _is_of_one_kind(values: Sequence[Any]) -> bool:
    """Whether a column of Parquet can hold the values as they are."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        return all(abs(value) <= _EXACT for value in values if isinstance(value, int))
    if kinds == {int}:
        return all(-(2**63) <= value < 2**63 for value in values if value is not None)
    return len(kinds) <= 1


def _whole(value: Any, remarks: list[str]) -> Any:
    if not isinstance(value, str):
        return value
    content, more = _encoded(value)
    remarks += more
    return content.decode()
