"""Kernels as Python and as other kernels call them: what each use compiles, and that no copy replaces another."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tensorcep.core.compile import AS_PYTHON, hold_interrupts, kernel

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(AS_PYTHON, reason="asks what is compiled")


@kernel
def smooth(x, times):
    """Means of neighbours, again and again: too long for LLVM to put it where it is called."""
    for _ in range(times):
        for i in range(1, x.size - 1):
            x[i] = (np.exp(x[i - 1]) + np.log1p(np.abs(x[i])) + np.tanh(x[i + 1])) / 3.0
        for i in range(x.size - 2, 0, -1):
            x[i] = np.sqrt(np.abs(np.sin(x[i - 1]) + np.cos(x[i]) * np.arctan(x[i + 1])))
        for i in range(x.size):
            if x[i] > 1.0:
                x[i] = 1.0 / x[i] + np.sinh(1.0 / x[i])
            elif x[i] < -1.0:
                x[i] = np.expm1(x[i]) / x[i]
    return x.sum()


@kernel
def smooth_both(x, y):
    return smooth(x, x.size) - smooth(y, y.size) + smooth(x, y.size) * smooth(y, x.size)


def test_kernel_that_others_call_is_compiled_for_python_only_where_python_calls_it():
    x = np.linspace(0.0, 1.0, 9)
    smooth_both(x.copy(), x[::-1].copy())
    assert not smooth.overloads
    assert len(smooth.part.overloads) == 1
    assert smooth(x.copy(), 1) == pytest.approx(smooth.py_func(x.copy(), 1))
    assert len(smooth.overloads) == 1


def test_kernel_keeps_its_copies_of_others_to_itself():
    """A copy that others saw could be replaced by theirs, which may round differently."""
    x = np.linspace(0.0, 1.0, 9)
    smooth_both(x.copy(), x[::-1].copy())
    (code,) = smooth_both.inspect_llvm().values()
    copies = [line for line in code.splitlines() if line.startswith("define") and "6smooth" in line]
    assert copies
    assert all(line.startswith("define internal") for line in copies)


KERNELS = """
import sys
from tensorcep.core.compile import kernel

@kernel
def half(x):
    return 0.5 * x

@kernel
def quarter(x):
    return half(half(x))

@kernel
def eighth(x):
    return half(quarter(x))

for name in sys.argv[1:]:
    print(globals()[name](1.0))
print(*(sum(k.part.stats.cache_hits.values()) for k in (half, quarter)))
"""


@pytest.mark.parametrize(("first", "hits"), [("quarter", "1 0"), ("half", "0 0"), ("eighth", "1 0")])
def test_what_other_kernels_call_is_loaded_by_kernels_compiled_later(tmp_path, first, hits):
    (tmp_path / "parts.py").write_text(KERNELS)
    command = [sys.executable, "-W", "error", str(tmp_path / "parts.py")]
    known = {**os.environ, "PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    numbers = {"half": "0.5", "quarter": "0.25", "eighth": "0.125"}

    def printed(*names):
        done = subprocess.run([*command, *names], capture_output=True, text=True, env=known, check=True)
        return done.stdout.split("\n")[:-1]

    assert printed(first)[0] == numbers[first]
    assert printed("eighth", "quarter", "half") == ["0.125", "0.25", "0.5", hits]


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_an_interrupt_waits_until_a_kernel_is_compiled():
    """In what LLVM calls back it was lost, and a fit could not be ended."""
    done = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's job in the background has none

    def compiled() -> None:
        with hold_interrupts():
            with hold_interrupts():  # a kernel that is compiled while another one is
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.01)
            done.append(1)

    try:
        with pytest.raises(KeyboardInterrupt):
            compiled()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert done == [1]
