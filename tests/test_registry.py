"""The one list of public names, and what follows from it."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

import fairway as fw
from fairway import registry


def test_type_checkers_are_shown_the_names_of_the_registry():
    stub = Path(fw.__file__).with_suffix(".pyi")
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    shown = {alias.asname: node.module for node in imports for alias in node.names}
    assert shown == {name: f"fairway.{home}" for name, home in registry.PUBLIC.items()}


@pytest.mark.parametrize("name", sorted(registry.PUBLIC))
def test_every_name_is_defined_where_the_registry_says(name):
    found = getattr(importlib.import_module(f"fairway.{registry.PUBLIC[name]}"), name)
    assert found is getattr(fw, name) is registry.load(name)
    assert found.__module__ == f"fairway.{registry.PUBLIC[name]}"


@pytest.mark.parametrize("name", ["os.system", "Study", "builtins.eval", ""])
def test_a_studys_json_can_name_nothing_else(name):
    assert registry.kind(name) is None
