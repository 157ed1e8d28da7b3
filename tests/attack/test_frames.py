"""Texts and numbers that a table of another library cannot hold."""

from __future__ import annotations

import pytest

import fairway as fw


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
@pytest.mark.parametrize("note", [10**25, -(10**300), "half \udc80", 2**63])
def test_a_note_that_no_column_holds_becomes_text(library, note):
    pytest.importorskip(library)
    study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Maximize("auc"), seed=0)
    for each in (note, 1 if isinstance(note, int) else "whole"):
        trial = study.ask()
        trial.note(found=each)
        study.tell(trial, auc=0.5)
    cells = (
        [str(cell) for cell in study.to_frame(library)["note.found"].to_list()]
        if library != "pyarrow"
        else [str(cell) for cell in study.to_frame(library)["note.found"].to_pylist()]
    )
    assert cells[0].encode(errors="backslashreplace").decode() == str(note).encode(errors="backslashreplace").decode()
