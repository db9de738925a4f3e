"""Modules that users import by their public names."""

from __future__ import annotations

import subprocess
import sys

import pytest
from helpers.source_graph import ROOT


@pytest.mark.parametrize("name", ["datasets", "distributed", "metrics", "plots"])
def test_public_module_is_an_attribute_and_can_be_imported(name: str) -> None:
    code = (
        f"import tensorcep; from tensorcep import {name} as a; b = tensorcep.{name}\n"
        f"import tensorcep.{name}; print(a is b is tensorcep.{name}, '{name}' in dir(tensorcep))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["True", "True"]


def test_datasets_functions_can_be_imported_by_name() -> None:
    from tensorcep.datasets import load_il2

    assert load_il2().order == 4
