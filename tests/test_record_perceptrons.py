from __future__ import annotations

import gzip

import numpy as np
import pytest

import fairway as fw

pytest.importorskip("sklearn")

from bench.record_perceptrons import METRICS, SPACE, TRAINED, Judge, record


class Fixed:
    """A model that is half sure of class 1, or of class 0 where the first feature is below 0."""

    def predict_proba(self, x):
        return np.where(x[:, :1] < 0, [[0.75, 0.25]], [[0.25, 0.75]])

    def predict(self, x):
        return self.predict_proba(x).argmax(axis=1)


def test_a_judge_measures_accuracy_the_worst_class_calibration_and_noise():
    x = np.array([[-5.0], [-5.0], [5.0], [-5.0]])  # far from 0: noise changes no answer
    measured = Judge(x, np.array([0, 0, 1, 1]), np.random.default_rng(0)).measure(Fixed())
    assert measured == (0.75, 0.5, 0.0, 0.0)  # sure to 75%, and right in three of four


def test_what_is_recorded_is_a_recording_of_every_epoch(tmp_path, monkeypatch):
    monkeypatch.setitem(TRAINED, "pendigits", 300)
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 400)
    table = np.column_stack([y + 0.1 * rng.normal(size=400), rng.normal(size=400), y])
    (tmp_path / "openml_tabular").mkdir()
    with gzip.open(tmp_path / "openml_tabular" / "pendigits.tsv.gz", "wt") as file:
        np.savetxt(file, table, delimiter="\t", header="a\tb\ttarget", comments="")
    record("pendigits", tmp_path, 4, 5, tmp_path / "made.npz")
    made = fw.Recording.load(tmp_path / "made.npz")
    assert len(made) == 4
    assert list(made.space) == list(SPACE)
    assert set(made.metrics) == set(METRICS)
    assert (made.total_steps == 5).all()
    assert len(made.seconds) == 20
    assert ((made.metrics["accuracy"] >= 0) & (made.metrics["accuracy"] <= 1)).all()
    assert (made.metrics["worst_error"] >= 1 - made.metrics["accuracy"] - 1e-9).all()
