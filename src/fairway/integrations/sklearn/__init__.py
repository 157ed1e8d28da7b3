"""fairway for scikit-learn: a cross-validated search under constraints, scorers for them, training in steps."""

from __future__ import annotations

from fairway.errors import MissingDependency

try:
    import sklearn  # noqa: F401 - is it there?
except ImportError:
    raise MissingDependency("fairway.integrations.sklearn needs scikit-learn: pip install 'fairway[sklearn]'") from None

from fairway.integrations.sklearn.folds import group_scorer
from fairway.integrations.sklearn.search import ConstrainedSearchCV
from fairway.integrations.sklearn.steps import fit_steps

__all__ = ["ConstrainedSearchCV", "fit_steps", "group_scorer"]
