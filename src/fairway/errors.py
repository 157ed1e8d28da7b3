"""What fairway raises. Every message is one sentence: what came, what is allowed, what to do."""

from __future__ import annotations


class FairwayError(Exception):
    """The root of everything fairway raises on purpose.

    >>> import fairway as fw
    >>> issubclass(fw.UsageError, fw.FairwayError)
    True
    """


class UsageError(FairwayError, ValueError):
    """A call that can never work as written: a wrong value, name, step or order of calls.

    >>> import fairway as fw
    >>> fw.Float(1.0, 0.0)
    Traceback (most recent call last):
        ...
    fairway.errors.UsageError: Float(1.0, 0.0): low must be below high; did you mean Float(0.0, 1.0)?
    """


class StudyFailed(FairwayError):  # noqa: N818 - it says what happened, as KeyboardInterrupt does
    """`optimize` gave up because nothing it started could succeed; the cause is chained.

    >>> import fairway as fw
    >>> study = fw.Study({"x": fw.Float(0.0, 1.0)}, fw.Minimize("loss"), seed=0)
    >>> study.optimize(lambda trial: trial.params["y"], trials=10)
    Traceback (most recent call last):
        ...
    fairway.errors.StudyFailed: 3 trials failed and none succeeded; the last one: KeyError: 'y'
    """


class SpaceExhausted(FairwayError):  # noqa: N818 - no error, an end
    """Every configuration of a finite space was tried."""


class StorageError(FairwayError):
    """The log could not be read or written; nothing that was told before is lost.

    >>> import fairway as fw
    >>> issubclass(fw.StorageError, fw.UsageError)
    False
    """


class MissingDependency(FairwayError, ImportError):  # noqa: N818 - reads as a sentence
    """An optional part was asked for whose package is not installed; the message says how to install it.

    >>> issubclass(MissingDependency, ImportError)
    True
    """
