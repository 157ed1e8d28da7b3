"""Hints for names that users of other libraries type first: the error gives fairway's name; there are no aliases."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Never, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Made = TypeVar("_Made")
_Kind = TypeVar("_Kind")

_DECLARED = "declare the space in the study, as in fw.Study({{'x': {}}}, ...), and read trial.params['x']"

MODULE = {
    "create_study": "write fw.Study(space, fw.Maximize('auc')), with storage= and name= to keep it",
    "TrialPruned": "nothing is raised; the loop over trial.steps(n) ends by itself, or look at trial.stopped",
    "TPESampler": "leave sampler= out (the default is fw.Compass()), or write fw.CTPE() or fw.TPE()",
    "RandomSampler": "write sampler=fw.Random()",
    "MedianPruner": "write stopper=fw.Median(); the default is fw.Pilot()",
    "HyperbandPruner": "write stopper=fw.ASHA(); the default is fw.Pilot()",
}
STUDY = {
    "best_params": "write study.best.params",
    "best_value": "write study.best.objective",
    "best_trial": "write study.best, or study.trials[study.best.number]",
    "enqueue_trial": "write study.enqueue(params)",
    "trials_dataframe": "write study.to_frame()",
    "set_user_attr": "write study.note(name=value)",
}
TRIAL = {
    "suggest_float": _DECLARED.format("fw.Float(0.0, 1.0)"),
    "suggest_int": _DECLARED.format("fw.Int(1, 10)"),
    "suggest_categorical": _DECLARED.format("fw.Choice(['a', 'b'])"),
    "should_prune": "the loop over trial.steps(n) ends by itself, or look at trial.stopped",
    "set_user_attr": "write trial.note(name=value)",
}
OPTIMIZE = {
    "n_trials": "trials= for this many more, or total= for this many in all",
    "n_jobs": "workers=",
    "show_progress_bar": "progress=",
}
SEARCH = {
    "param_distributions": "space=",
    "param_grid": "space=",
    "n_iter": "trials=",
    "n_jobs": "workers=",
    "verbose": "progress=",
}


def missing(what: str, name: str, hint: str | None) -> AttributeError:
    """The error for an attribute that is not there.

    >>> missing("'Study' object", "best_value", STUDY["best_value"])
    AttributeError("'Study' object has no attribute 'best_value': write study.best.objective")
    """
    return AttributeError(f"{what} has no attribute {name!r}{f': {hint}' if hint else ''}")


class _Missing:
    """An attribute that is not there: reading it raises with a hint. Unlike `__getattr__`, it leaves others fast."""

    def __init__(self, name: str, hint: str) -> None:
        self._name, self._hint = name, hint

    def __get__(self, instance: object, kind: type) -> Never:
        raise missing(f"{kind.__name__!r} object", self._name, self._hint)


def answering(hints: Mapping[str, str]) -> Callable[[type[_Kind]], type[_Kind]]:
    """A class decorator that makes the error for these missing attributes give a hint; `dir` does not list them."""

    def decorate(kind: type[_Kind]) -> type[_Kind]:
        for name, hint in hints.items():
            setattr(kind, name, _Missing(name, hint))
        kind.__dir__ = lambda self: [name for name in object.__dir__(self) if name not in hints]  # type: ignore[method-assign]
        return kind

    return decorate


def hinting(hints: Mapping[str, str]) -> Callable[[Callable[_Given, _Made]], Callable[_Given, _Made]]:
    """A decorator that makes the error for these unknown keyword arguments give a hint."""

    def decorate(function: Callable[_Given, _Made]) -> Callable[_Given, _Made]:
        called = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @wraps(function)
        def call(*given: _Given.args, **named: _Given.kwargs) -> _Made:
            for name in named.keys() & hints.keys():
                raise TypeError(f"{called}() has no argument {name!r}: write {hints[name]}")
            return function(*given, **named)

        return call

    return decorate
