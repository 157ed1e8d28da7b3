"""Certifies a study's model on rows that the search never saw: measure, put in order, seal, test one by one.

What is tested and in which order is written to the log before the fresh rows are looked at, and each test after it is
made. So a certification that was cut off resumes where it was, and `verify` can make all of it again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairway import checks, hashing
from fairway.checks import whole
from fairway.engine.certificate import Certificate, certificate
from fairway.engine.certification import (
    Candidate,
    Certification,
    candidates,
    check_rows,
    level_of,
    p_values,
    promising,
    safety,
)
from fairway.engine.events import Sealed, Surveyed, Tested
from fairway.engine.ledger import Ledger
from fairway.engine.owner import Owner
from fairway.engine.record import Best
from fairway.engine.trial import Trial
from fairway.errors import StorageError, UsageError
from fairway.evidence import Decisions, Evidence
from fairway.feasibility import Checkpoint
from fairway.fresh import FreshRows
from fairway.runners.models import Training
from fairway.runners.survey import plan_survey
from fairway.seeds import trial_seed

Evaluate = Callable[[Any], Evidence | Mapping[str, Evidence]]


_BUSY = "another process certifies this study at the same moment: try again when it is done"


class Certifier:
    """One call of `study.certify`."""

    def __init__(
        self,
        owner: Owner,
        evaluate: Evaluate,
        *,
        train: Callable[[Trial], Any] | None,
        models: Callable[[Best], Any] | None,
        confidence: float,
        at_most: int,
        rows: Any,
        uses: int,
        progress: bool | None,
    ) -> None:
        if not callable(evaluate):
            raise UsageError(f"evaluate={evaluate!r}: a function of a model, or fw.FreshRows(...), is expected")
        if (train is None) == (models is None):
            raise UsageError("certify: pass the function that was optimised, train=, or models=, a function of a Best")
        self._owner, self._evaluate, self._train, self._models = owner, evaluate, train, models
        self._confidence, self._at_most = checks.confidence(confidence), whole(at_most, "at_most")
        self._uses = whole(uses, "uses")
        if rows is None and isinstance(evaluate, FreshRows):
            rows = evaluate.rows
        self._hashes = None if rows is None else hashing.hashes(rows)
        self._say = _printer(progress)
        self._trained: dict[int, Training] = {}
        self.number = -1  # of the certification, once it is over

    @property
    def _ledger(self) -> Ledger:
        return self._owner.ledger

    @property
    def _level(self) -> float:
        return level_of(self._confidence, self._uses)

    def run(self) -> Certificate:
        """Test candidates until one fails or none is left."""
        problem = self._owner.problem
        if not problem.constraints:
            raise UsageError("the study has no limit that could be certified: give it constraints")
        self._owner.journal.catch_up()
        front = promising(problem, self._owner.journal.read(0), level=self._level)
        if not any(safety(problem, one.values, one.errors) >= 0.0 for one in front):
            raise UsageError("nothing within the limits was measured so far: there is no candidate to certify")
        certification = self._open() or self._seal()
        held: dict[int, Any] = {}  # models that passed, by place
        while not certification.is_over:
            place = len(certification.tests)
            held[place] = self._test(certification, place)
        found = certificate(problem, certification, self._ledger.courses)
        if found.chosen not in held:  # it was tested before a restart
            held[found.chosen] = self._model(certification.candidates[found.chosen])
        self.number = certification.sealed.certification
        return replace(found, model=held[found.chosen])

    def _open(self) -> Certification | None:
        """A certification on these rows that was cut off, to be resumed; raises if the rows are spent."""
        before = [one for one in self._ledger.certifications if one.tests and self._shares_rows(one.sealed)]
        if not before:
            return None
        first, last = before[0].sealed, before[-1]
        if self._confidence != first.confidence:
            raise UsageError(
                f"confidence={self._confidence:g}: these rows are reserved at {first.confidence:g}; "
                "another confidence needs other rows"
            )
        if not last.is_over:
            self._say(f"resuming a certification after {len(last.tests)} of {len(last.sealed.candidates)} candidates")
            return last
        if len(before) >= first.uses:
            known = (
                "" if self._hashes is not None else "; pass rows= if these are others, so that they can be told apart"
            )
            times = "once" if first.uses == 1 else f"{first.uses} times"
            raise UsageError(
                f"these rows have been used {times} to certify, as was reserved (uses={first.uses}): "
                f"certify on other rows{known}"
            )
        self._uses = first.uses
        return None

    def _shares_rows(self, sealed: Sealed) -> bool:
        """Whether an earlier certification looked at these rows; unknown rows count as the same."""
        if self._hashes is None or sealed.hashes is None:
            return True
        return hashing.overlap(self._hashes, hashing.unpack(sealed.hashes))[1]

    def _overlap(self) -> int | None:
        """How many fresh rows equal one that the search saw; None if that cannot be told."""
        searched = [hashing.unpack(event.hashes) for event in self._ledger.searched]
        if self._hashes is None or not searched:
            return None
        found = int(np.isin(self._hashes, np.concatenate(searched)).sum())
        if any(hashing.overlap(self._hashes, each)[1] for each in searched):  # the same rows may have been named twice
            raise UsageError(
                f"{found:,} of {len(self._hashes):,} fresh rows are rows that the search trained or judged by: "
                "certify on rows that it never saw"
            )
        return found

    def _check_groups(self, evidence: Mapping[str, Evidence]) -> None:
        known = {name for event in self._ledger.searched for name in event.groups or ()}
        for each in evidence.values():
            missing = sorted(known - set(each.groups)) if isinstance(each, Decisions) else []
            if missing:
                raise UsageError(
                    f"the fresh rows have nobody of group {missing[0]!r}: certify on rows with every group"
                )

    def _seal(self) -> Certification:
        """Measure what could be a candidate, put the candidates in order, and write the order down."""
        overlap = self._overlap()
        if self._train is not None:
            self._survey(self._train)
        events, problem = self._owner.journal.read(0), self._owner.problem
        found = candidates(problem, events, at_most=self._at_most, level=self._level)
        sealed = Sealed(
            certification=len(self._ledger.certifications),
            candidates=[tuple(each) for each in found],
            confidence=self._confidence,
            uses=self._uses,
            at_most=self._at_most,
            rows=None if self._hashes is None else len(self._hashes),
            hashes=None if self._hashes is None else hashing.pack(self._hashes),
            overlap=overlap,
            at=self._owner.clock.at(),
        )
        if not self._owner.journal.append(sealed):
            raise StorageError(_BUSY)
        return self._ledger.certifications[sealed.certification]

    def _survey(self, train: Callable[[Trial], Any]) -> None:
        """Train the most promising trials again, and measure their limits on the way, on the judging rows."""
        plan = plan_survey(self._owner, self._level)
        for i, (last, steps) in enumerate(plan):
            self._say(f"measuring trial {last.number} on the judging rows, {i + 1} of {len(plan)}")
            seed = trial_seed(self._owner.seed, last.number)
            training = Training(last, seed, self._owner.problem, train, steps)
            self._trained[last.number] = training
            if training.rows:
                step, objective, values, errors = map(list, zip(*training.rows, strict=True))
                self._owner.journal.append(Surveyed(last.number, step, objective, values, errors, cuts=training.cuts))

    def _model(self, candidate: Candidate) -> Any:
        """The model of a candidate."""
        problem = self._owner.problem
        checkpoint = Checkpoint(candidate.step, candidate.objective, candidate.values, errors=candidate.errors)
        best = self._owner.named(candidate.number, checkpoint)
        if self._models is not None:
            return self._models(best)
        training = self._trained.get(candidate.number)
        model = None if training is None else training.at(candidate.step)
        if model is None and self._train is not None:
            seed = trial_seed(self._owner.seed, candidate.number)
            model = Training(best, seed, problem, self._train, ()).model
        return model

    def _test(self, certification: Certification, place: int) -> Any:
        """Test one candidate and write down what the fresh rows say of it; returns the model."""
        candidate, problem = certification.candidates[place], self._owner.problem
        which = f"trial {candidate.number}, step {candidate.step}"
        self._say(f"testing {which}: candidate {place + 1} of {len(certification.candidates)}")
        model = self._model(candidate)
        try:
            said = self._evaluate(model)
        except Exception as error:
            error.add_note(f"raised by evaluate, for {which}; no row was spent by that")
            raise
        evidence = _checked(said, [each.metric for each in problem.constraints])
        self._check_groups(evidence)
        for each in problem.constraints if place == 0 else ():
            check_rows(evidence[each.metric], each, certification.level)
        decided = next((each.digest for each in evidence.values() if isinstance(each, Decisions)), None)
        kept = {name: one.to_json() for name, one in evidence.items()}
        at = self._owner.clock.at()
        test = Tested(certification.sealed.certification, place, kept, p_values(problem, kept), decided, at)
        if not self._owner.journal.append(test):
            raise StorageError(_BUSY)
        return model


def _checked(said: Any, metrics: Sequence[str]) -> dict[str, Evidence]:
    """What `evaluate` returned, as evidence for each limit."""
    if isinstance(said, Evidence) and len(metrics) == 1:
        return {metrics[0]: said}
    if not isinstance(said, Mapping):
        raise UsageError(
            f"evaluate returned {repr(said)[:60]}: evidence for each limit ({', '.join(metrics)}) is expected, as in "
            f"{{{metrics[0]!r}: Decisions(...)}} of fairway.evidence"
        )
    for name in metrics:
        if not isinstance(said.get(name), Evidence):
            came = "nothing" if name not in said else repr(said[name])[:60]
            raise UsageError(
                f"evaluate returned {came} for {name!r}: Decisions, Mean, Quantile, Exact or Resampled of "
                "fairway.evidence is expected"
            )
    return {name: said[name] for name in metrics}


def _printer(wanted: bool | None) -> Callable[[str], None]:
    """What prints a line of progress, by default only in a terminal."""
    shown = wanted if wanted is not None else sys.stderr is not None and sys.stderr.isatty()

    def say(line: str) -> None:
        if shown and sys.stderr is not None:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()

    return say
