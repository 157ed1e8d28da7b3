"""The exceptions that fairway raises. Every message says what was received, what is allowed and what to do."""

from __future__ import annotations

from fairway.letters import plain


class FairwayError(Exception):
    """The base of all of fairway's exceptions.

    >>> import fairway as fw
    >>> issubclass(fw.UsageError, fw.FairwayError)
    True
    """

    def __str__(self) -> str:
        return plain(super().__str__(), keep="\n")  # some messages quote names and errors from elsewhere


class UsageError(FairwayError, ValueError):
    """A call that cannot work as written: a wrong value, name, step or order of calls.

    >>> import fairway as fw
    >>> fw.Float(1.0, 0.0)
    Traceback (most recent call last):
        ...
    fairway.errors.UsageError: Float(1.0, 0.0): low must be below high; did you mean Float(0.0, 1.0)?
    """


class StudyFailed(FairwayError):  # noqa: N818 - named after what happened, like KeyboardInterrupt
    """`optimize` gave up because every trial failed; the last failure is chained.

    With `raise_on_failure=True`, `optimize` raises the first failure itself instead.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["y"], trials=10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    fairway.errors.StudyFailed: 3 trials failed and none succeeded; the last one: KeyError: 'y' (..., line 1, ...
    """


class SpaceExhausted(FairwayError):  # noqa: N818 - the normal end of a search
    """Every configuration of a finite space has been tried."""


class StudyComplete(FairwayError):  # noqa: N818 - the normal end of a search
    """The study has as many trials as `optimize(total=...)` asked for."""


class StorageError(FairwayError):
    """The log could not be read or written; events appended earlier are safe.

    >>> import fairway as fw
    >>> issubclass(fw.StorageError, fw.UsageError)
    False
    """


class Unreachable(StorageError):  # noqa: N818 - what happened
    """The log cannot be reached now but may be later: a storage that raises this is tried again for a while.

    >>> issubclass(Unreachable, StorageError)
    True
    """


class MissingDependency(FairwayError, ImportError):  # noqa: N818 - the message reads better
    """An optional package is not installed; the message says how to install it.

    >>> issubclass(MissingDependency, ImportError)
    True
    """
