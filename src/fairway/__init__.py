"""fairway finds the best model that meets its deployment limits, at the least cost."""

from __future__ import annotations

from typing import Any

from fairway import hints, registry

__version__ = "0.1.0"
__all__ = sorted([*registry.PUBLIC, "__version__"])  # noqa: PLE0605 - type checkers read __init__.pyi


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used."""
    if name not in registry.PUBLIC:
        raise hints.missing("module 'fairway'", name, hints.MODULE.get(name))
    value = registry.load(name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
