"""What the front end leaves out: nothing that a kernel, or numba beside it, would miss."""

from __future__ import annotations

import contextlib
import gc

import numpy as np
import pytest
from numba.core.registry import cpu_target

from tensorcep.core.compile import AS_PYTHON, block_kernel, hold_cycles, keep_signatures, kernel

pytestmark = pytest.mark.skipif(AS_PYTHON, reason="asks what is compiled")


@block_kernel
def shift(x, by, times):
    """x + by, so many times; the last number, too."""
    for i in range(x.size):
        x[i] += by * times
    return times


@kernel
def shift_twice(x, n):
    return shift(x, 1.0, 0) + shift(x, 1.0, 3) + shift(x, 1.0, n)


@kernel
def smallest(x, a, b):
    """Operators of both kinds of numbers, and functions that numba overloads."""
    return min(a // 2, b) + min(x[0] + 1.0, x[1] * 2.0) + np.zeros(3)[0] + x.min() + (a + b) / 2


def test_copies_of_a_kernel_differ_by_types_alone():
    x = np.zeros(2)
    assert shift_twice(x, 5) == 8
    assert len(shift.part.overloads) == 1
    np.testing.assert_array_equal(x, 8.0)


def test_operators_mean_what_they_mean_in_python():
    x = np.array([3.0, 1.0])
    for a, b in ((7, 2), (7.0, 2), (7, 2.5), (True, 3)):
        assert smallest(x, a, b) == smallest.py_func(x, a, b)


def test_signatures_are_kept_while_a_kernel_compiles_alone():
    context = cpu_target.typing_context
    with contextlib.suppress(ZeroDivisionError), keep_signatures(context):
        with keep_signatures(context):
            assert "resolve_function_type" in vars(context)
        assert "resolve_function_type" in vars(context)
        raise ZeroDivisionError
    assert "resolve_function_type" not in vars(context)


@pytest.mark.parametrize("on", [True, False])
def test_the_collector_of_cycles_is_as_before(on):
    before = gc.isenabled()
    (gc.enable if on else gc.disable)()
    try:
        with contextlib.suppress(ZeroDivisionError), hold_cycles(), hold_cycles():
            assert not gc.isenabled()
            raise ZeroDivisionError
        assert gc.isenabled() == on
    finally:
        (gc.enable if before else gc.disable)()
