"""Modules that users import by their public names."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from helpers.source_graph import ROOT


@pytest.mark.parametrize("name", ["datasets", "metrics", "plots"])
def test_public_module_is_an_attribute_and_can_be_imported(name: str) -> None:
    code = (
        f"import tensorcep; from tensorcep import {name} as a; b = tensorcep.{name}\n"
        f"import tensorcep.{name}; print(a is b is tensorcep.{name}, '{name}' in dir(tensorcep))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["True", "True"]


@pytest.mark.parametrize("name", ["datasets", "plots"])
def test_public_module_lists_what_it_has(name: str) -> None:
    module = importlib.import_module(f"tensorcep.{name}")
    assert len(set(module.__all__)) == len(module.__all__)
    assert all(hasattr(module, item) for item in module.__all__)
    assert {item for item in dir(module) if item.startswith(("load_", "plot_"))} <= set(module.__all__)


def test_datasets_functions_can_be_imported_by_name() -> None:
    from tensorcep.datasets import load_il2

    assert load_il2().order == 4
