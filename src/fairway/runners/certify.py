"""Certifies a study's model on rows that the search never saw: measure, put in order, seal, test one by one.

The candidates and their order are written to the log before the fresh rows are looked at, and each test is written
after it is made. So a certification that was cut off resumes where it was, and `verify` can repeat all of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fairway import checks, hashing
from fairway.checks import flag, whole
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
from fairway.engine.columns import stretched
from fairway.engine.events import Sealed, Surveyed, Tested
from fairway.engine.ledger import Ledger
from fairway.engine.owner import Owner
from fairway.engine.record import Best
from fairway.engine.trial import Trial
from fairway.errors import UsageError
from fairway.evidence import Decisions, Evidence
from fairway.feasibility import Checkpoint
from fairway.fresh import FreshRows
from fairway.runners.models import Training
from fairway.runners.progress import paced, say
from fairway.runners.survey import plan_survey

Evaluate = Callable[[Any], Evidence | Mapping[str, Evidence]]


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
        progress: bool,
    ) -> None:
        if not callable(evaluate):
            raise UsageError(f"evaluate={evaluate!r}: a function of a model, or fw.FreshRows(...), is expected")
        if (train is None) == (models is None):
            raise UsageError("certify: pass the function that was optimised, train=, or models=, a function of a Best")
        if not callable(models if train is None else train):
            raise UsageError(f"certify: {models if train is None else train!r} is no function")
        self._owner, self._evaluate, self._train, self._models = owner, evaluate, train, models
        self._confidence, self._at_most = checks.confidence(confidence), whole(at_most, "at_most")
        self._uses = whole(uses, "uses")
        if rows is None and isinstance(evaluate, FreshRows):
            rows = evaluate.rows
        self._hashes = None if rows is None else hashing.hashes(rows)
        flag(progress, "progress")
        self._say = say if progress else lambda line: None  # noqa: ARG005
        self._say_measuring, self._say_testing = paced(self._say), paced(self._say)
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
        if not problem.limits:
            raise UsageError("the study has no limit that could be certified: give it constraints")
        self._owner.journal.catch_up()
        front = promising(problem, self._owner.journal.read(0), level=self._level)
        if not any(safety(problem, one.values, one.errors) >= 0.0 for one in front):
            some = "" if self._owner.best is None else ", except in trials that are running or failed"
            raise UsageError(f"nothing within the limits was measured so far{some}: there is no candidate to certify")
        while not (certification := self._resumed() or self._seal()):
            continue  # another process sealed one at the same moment: look again
        held: dict[int, Any] = {}  # models that passed, by place
        while not certification.is_over:
            place = len(certification.tests)
            held[place] = self._test(certification, place)
        found = certificate(self._ledger.certified_limits(certification), certification, self._ledger.courses)
        if found.chosen not in held:  # it was tested before a restart, or by another process
            held[found.chosen] = self._model(certification.candidates[found.chosen])
        self.number = certification.sealed.certification
        return replace(found, model=held[found.chosen])

    def _resumed(self) -> Certification | None:
        """A certification on these rows that was cut off, to be resumed; raises if the rows are spent."""
        sharing = [one for one in self._ledger.certifications if self._shares_rows(one.sealed)]
        if not sharing:
            return None
        last, before = sharing[-1], [one for one in sharing if one.tests]
        first = before[0].sealed if before else last.sealed
        if before and self._confidence != first.confidence:
            raise UsageError(
                f"confidence={self._confidence:g}: these rows are reserved at {first.confidence:g}; "
                "another confidence needs other rows"
            )
        if not last.is_over and self._is_same(last.sealed):
            self._say(f"resuming a certification after {len(last.tests)} of {len(last.sealed.candidates)} candidates")
            self._uses = last.sealed.uses
            return last
        if not last.is_over and last.tests:
            raise UsageError("a certification on some of these rows was cut off: finish it first, with the same rows")
        if before and len(before) >= first.uses:
            unknown = "" if self._hashes is not None else "; pass rows= if these are others, to tell them apart"
            times = "once" if first.uses == 1 else f"{first.uses} times"
            raise UsageError(
                f"these rows have been used {times} to certify, as was reserved (uses={first.uses}): "
                f"certify on other rows{unknown}"
            )
        self._uses = first.uses if before else self._uses
        return None

    def _is_same(self, sealed: Sealed) -> bool:
        """Whether an earlier certification is the one that was asked for."""
        if sealed.confidence != self._confidence or not sealed.candidates:
            return False
        packed = None if self._hashes is None else hashing.pack(self._hashes)
        return sealed.hashes == packed

    def _shares_rows(self, sealed: Sealed) -> bool:
        """Whether an earlier certification looked at these rows; unknown rows count as the same."""
        if self._hashes is None or sealed.hashes is None:
            return True
        return hashing.overlap(self._hashes, hashing.unpack(sealed.hashes))[1]

    def _overlap(self) -> int | None:
        """How many fresh rows equal one that the search saw; None if that is unknown."""
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
            if isinstance(each, Decisions) and (missing := sorted(known - set(each.groups))):
                there = ", ".join(map(repr, each.groups))
                raise UsageError(
                    f"the fresh rows have nobody of group {missing[0]!r}: they have {there}; "
                    "certify on rows with every group of the search, named alike"
                )

    def _seal(self) -> Certification | None:
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
            hashes=None if self._hashes is None else hashing.pack(self._hashes),
            overlap=overlap,
            seen=len(events),
            at=self._owner.clock.at(),
            best=self._ledger.bests.place,
        )
        if not self._owner.write(sealed):
            return None
        return self._ledger.certifications[sealed.certification]

    def _survey(self, train: Callable[[Trial], Any]) -> None:
        """Train the most promising trials again, and measure their limits on the way, on the judging rows."""
        plan, problem = plan_survey(self._owner, self._level), self._owner.problem
        for i, (last, steps) in enumerate(plan):
            self._say_measuring(f"measuring trial {last.number} on the judging rows, {i + 1} of {len(plan)}")
            seed = self._owner.seed_of(last.number)
            training = Training(last, seed, problem, train, steps)
            self._trained[last.number] = training
            if training.rows:
                step, objective, values, errors = map(list, zip(*training.rows, strict=True))
                values = [stretched(each, problem, math.nan) for each in values]
                errors = [stretched(each, problem, None) for each in errors]
                self._owner.write(Surveyed(last.number, step, objective, values, errors, cuts=training.cuts))

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
            seed = self._owner.seed_of(candidate.number)
            model = Training(best, seed, problem, self._train, ()).model
        return model

    def _test(self, certification: Certification, place: int) -> Any:
        """Test one candidate and write down what the fresh rows say about it; returns the model."""
        candidate, problem = certification.candidates[place], self._ledger.certified_limits(certification)
        which = f"trial {candidate.number}, step {candidate.step}"
        self._say_testing(f"testing {which}: candidate {place + 1} of {len(certification.candidates)}")
        try:
            model = self._model(candidate)
        except Exception as error:
            error.add_note(f"raised where the model of {which} is built")
            raise
        if model is None:
            raise UsageError(f"models returned None for {which}: the model is expected")
        try:
            said = self._evaluate(model)
        except Exception as error:
            error.add_note(f"raised by evaluate for {which}: nothing was written for it; call certify again to resume")
            raise
        evidence = _checked(said, [each.metric for each in problem.limits])
        self._check_groups(evidence)
        if place == 0:
            for each in problem.limits:
                check_rows(evidence[each.metric], each, certification.level)
        decided = next((each.digest for each in evidence.values() if isinstance(each, Decisions)), None)
        kept = {name: one.to_json() for name, one in evidence.items()}
        at = self._owner.clock.at()
        test = Tested(certification.sealed.certification, place, kept, p_values(problem, kept), decided, at)
        self._refuse_if_superseded(certification.sealed)
        self._owner.write(test)  # if another process was first, it says the same
        return model

    def _refuse_if_superseded(self, sealed: Sealed) -> None:
        self._owner.journal.catch_up()
        for one in self._ledger.certifications[sealed.certification + 1 :]:
            if self._shares_rows(one.sealed):
                raise UsageError("another certification on these rows has begun meanwhile: certify on other rows")


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
