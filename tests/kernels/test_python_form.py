"""Kernels as Python (for a debugger) and with checked bounds give the numbers of the compiled kernels."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import kernel_numbers

import tensorcep

BEYOND = """
from tensorcep.core.compile import kernel
from tensorcep.kernels.slots import copy, lane_zeros
@kernel
def beyond(w):
    copy(w, 0, 1, 4)
try:
    beyond(lane_zeros((4, 16)))
except IndexError:
    print("seen")
"""


@pytest.fixture(scope="module")
def compiled():
    return kernel_numbers.numbers(*kernel_numbers.GROUPS)


def python(arguments, switch):
    folders = [Path(tensorcep.__file__).parents[1], Path(kernel_numbers.__file__).parents[1]]
    cache = str(Path(os.environ["NUMBA_CACHE_DIR"]) / switch)
    path = os.pathsep.join(str(folder) for folder in folders)
    env = {**os.environ, switch: "1", "NUMBA_CACHE_DIR": cache, "PYTHONPATH": path}
    run = subprocess.run(
        [sys.executable, *arguments], env=env, capture_output=True, check=False, text=True, timeout=600
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


GROUPS = {"NUMBA_DISABLE_JIT": "lanes rows chains cep", "NUMBA_BOUNDSCHECK": "lanes rows chains cep"}


@pytest.mark.slow
@pytest.mark.parametrize(("switch", "groups"), GROUPS.items())
def test_kernels_give_the_same_numbers(compiled, tmp_path, switch, groups):
    path = tmp_path / "numbers.npz"
    python([kernel_numbers.__file__, str(path), *groups.split()], switch)
    with np.load(path) as other:
        for name in other.files:
            np.testing.assert_allclose(other[name], compiled[name], rtol=1e-9, atol=1e-11, err_msg=name)


@pytest.mark.parametrize("switch", ["NUMBA_DISABLE_JIT", "NUMBA_BOUNDSCHECK"])
def test_a_slot_beyond_the_array_is_seen(tmp_path, switch):
    path = tmp_path / "beyond.py"
    path.write_text(BEYOND)
    assert python([str(path)], switch) == "seen\n"
