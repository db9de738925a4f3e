"""Modules that users import by their public names."""

from __future__ import annotations

import subprocess
import sys

from helpers.source_graph import ROOT

MODULES = ("datasets", "distributed", "metrics", "plots")


def test_public_modules_are_attributes_and_can_be_imported() -> None:
    code = "import tensorcep\n" + "\n".join(
        f"from tensorcep import {name} as a; b = tensorcep.{name}\n"
        f"import tensorcep.{name}; print('{name}', a is b is tensorcep.{name}, '{name}' in dir(tensorcep))"
        for name in MODULES
    )
    code += "\nimport sys, tensorcep.river; print('river' in sys.modules)"  # which is asked for only when it is used
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.splitlines() == [*(f"{name} True True" for name in MODULES), "False"]


def test_datasets_functions_can_be_imported_by_name() -> None:
    from tensorcep.datasets import load_il2

    assert load_il2().order == 4


def test_modules_of_functions_show_their_public_names_alone() -> None:
    from tensorcep import metrics, plots

    assert "crps_gaussian" in dir(metrics)
    assert "ReliabilityCurve" in dir(metrics)
    assert "plot_components" in dir(plots)
    for module in (metrics, plots):
        assert not [name for name in dir(module) if name[0] == "_" or not getattr(module, name).__doc__]
    assert not {"np", "sk", "NamedTuple", "annotations", "components", "axes"} & {*dir(metrics), *dir(plots)}
