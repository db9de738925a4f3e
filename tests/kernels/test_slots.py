"""Vector operations on slots: every one against numpy, in float64 and float32, and the 4 x 4 tiles."""

from __future__ import annotations

import numpy as np
from helpers.cases import each

from tensorcep.core.compile import kernel
from tensorcep.kernels import slots
from tensorcep.kernels.slots import (
    LANES,
    axpy,
    copy,
    damp,
    dot,
    dot_add,
    dot_pair,
    lane_zeros,
    multiply,
    neg_dot_scaled,
    neg_pair,
    pivot_step,
    scale,
    solve_pair,
    solve_step,
    subtract,
    tile_add,
    tile_in,
)

NAMES = (
    "dot",
    "dot_add",
    "solve_step",
    "neg_dot_scaled",
    "axpy",
    "multiply",
    "subtract",
    "scale",
    "copy",
    "damp",
)


@kernel
def apply(which, out, o, x, i, y, j, n, c, k):
    """Run operation number `which` of NAMES, every operand in an array of its own."""
    w, to, at_x, at_y, factor = x, (out, o), (x, i), (y, j), (c, k)
    if which == 0:
        dot(w, to, at_x, at_y, n)
    elif which == 1:
        dot_add(w, to, at_x, at_y, n)
    elif which == 2:
        solve_step(w, to, at_x, at_y, n, factor)
    elif which == 3:
        neg_dot_scaled(w, to, at_x, at_y, n, factor)
    elif which == 4:
        axpy(w, to, at_x, at_y, n, factor)
    elif which == 5:
        multiply(w, to, at_x, at_y, n)
    elif which == 6:
        subtract(w, to, at_x, at_y, n)
    elif which == 7:
        scale(w, to, at_x, n, factor)
    elif which == 8:
        copy(w, to, at_x, n)
    elif which == 9:
        damp(w, to, at_x, at_y, n, factor)


@kernel
def apply_in_one(which, w, o, i, j, n, k):
    """Run operation number `which` of NAMES on slots of one array."""
    if which == 0:
        dot(w, o, i, j, n)
    elif which == 1:
        dot_add(w, o, i, j, n)
    elif which == 2:
        solve_step(w, o, i, j, n, k)
    elif which == 3:
        neg_dot_scaled(w, o, i, j, n, k)
    elif which == 4:
        axpy(w, o, i, j, n, k)
    elif which == 5:
        multiply(w, o, i, j, n)
    elif which == 6:
        subtract(w, o, i, j, n)
    elif which == 7:
        scale(w, o, i, n, k)
    elif which == 8:
        copy(w, o, i, n)
    elif which == 9:
        damp(w, o, i, j, n, k)


@kernel
def apply_pair(which, w, o1, o2, x, y1, y2, n, d):
    if which == 0:
        dot_pair(w, o1, o2, x, y1, y2, n)
    elif which == 1:
        solve_pair(w, o1, o2, x, y1, y2, n, d)
    elif which == 2:
        neg_pair(w, o1, o2, x, y1, y2, n, d)


@kernel
def pivot(w, o, i, n, k, ok):
    pivot_step(w, o, i, n, k, ok)


@kernel
def load_tile(w, o, lane, source, f0, f1, f2, f3):
    tile_in(w, o, lane, source, f0, f1, f2, f3)


@kernel
def add_tile(total, f0, f1, f2, f3, values, o, lane):
    tile_add(total, f0, f1, f2, f3, values, o, lane)


def lanes(rng, n, dtype=np.float64):
    w = lane_zeros((n, LANES), dtype)
    w[:] = rng.standard_normal((n, LANES))
    return w


def expected(name, old, x, y, c):
    """The slots that an operation writes, in float64; x and y are (n, LANES), old is what stood at the result."""
    total = (x * y).sum(axis=0)
    return {
        "dot": total[None],
        "dot_add": old[:1] + total,
        "solve_step": (old[:1] - total) * c,
        "neg_dot_scaled": -total[None] * c,
        "axpy": x + c * y,
        "multiply": x * y,
        "subtract": x - y,
        "scale": c * x,
        "copy": x,
        "damp": np.where(c > 0, x + c * (y - x), x),
    }[name]


@each("dtype", [np.float64, np.float32])
@each("name", NAMES)
def test_slots_operation_equals_numpy_and_writes_nothing_else(rng, name, dtype):
    x, y, c = lanes(rng, 12, dtype), lanes(rng, 15), lanes(rng, 3)
    for n in (0, 1, 2, 7):
        out = lanes(rng, 11, dtype)
        before = out.astype(float)
        apply(NAMES.index(name), out, 2, x, 4, y, 5, n, c, 1)
        result = expected(name, before[2:], x[4 : 4 + n].astype(float), y[5 : 5 + n], c[1])
        before[2 : 2 + len(result)] = result
        tolerance = 1e-13 if dtype == np.float64 else 1e-6
        np.testing.assert_allclose(out, before, rtol=tolerance, atol=tolerance)


@each("name", NAMES)
def test_slots_operation_in_one_array_equals_that_on_several(rng, name):
    w = lanes(rng, 16)
    right = w.copy()
    apply(NAMES.index(name), right, 0, w.copy(), 5, w.copy(), 9, 4, w.copy(), 14)
    apply_in_one(NAMES.index(name), w, 0, 5, 9, 4, 14)
    np.testing.assert_array_equal(w, right)


@each("name", ["axpy", "multiply", "subtract", "scale", "damp"])
def test_slots_operation_may_overwrite_its_operand(rng, name):
    w = lanes(rng, 12)
    result = expected(name, w[2:], w[2:7].copy(), w[7:12].copy(), w[0])
    apply(NAMES.index(name), w, 2, w, 2, w, 7, 5, w, 0)
    np.testing.assert_allclose(w[2:7], result, rtol=1e-14)


def test_slots_damp_ignores_proposals_of_lanes_without_a_step(rng):
    x, y, c = lanes(rng, 3), lanes(rng, 3), lanes(rng, 1)
    c[0] = 0.5
    c[0, 3] = 0.0
    y[:, 3] = np.nan
    kept = x[:, 3].copy()
    apply(NAMES.index("damp"), x, 0, x, 0, y, 0, 3, c, 0)
    np.testing.assert_array_equal(x[:, 3], kept)
    assert np.isfinite(x).all()


@each("name", ["dot", "solve", "neg"])
@each("n", [0, 1, 5])
def test_slots_pair_equals_two_single_operations(rng, name, n):
    w = lanes(rng, 22)
    before = w.copy()
    apply_pair(["dot", "solve", "neg"].index(name), w, 0, 1, 2, 8, 14, n, 20)
    for out, y in ((0, 8), (1, 14)):
        total = (before[2 : 2 + n] * before[y : y + n]).sum(axis=0)
        right = {"dot": total, "solve": (before[out] - total) * before[20], "neg": -total * before[20]}[name]
        np.testing.assert_allclose(w[out], right, rtol=1e-13, atol=1e-14)
    np.testing.assert_array_equal(w[2:], before[2:])


def test_slots_pivot_step_is_the_inverse_root_and_flags_what_is_not_positive(rng):
    w = lane_zeros((6, LANES))
    w[:2] = 0.5
    w[2] = 3.0
    w[2, 1] = 0.5  # pivot 0
    w[2, 2] = -1.0
    w[2, 3] = np.nan
    w[2, 4] = np.inf
    w[2, 5] = 0.5 + 1e-15  # positive by less than rounding
    w[1, 6] = np.nan
    w[5] = 1.0
    w[5, 7] = 0.0  # flagged earlier
    pivot(w, 2, 0, 2, 3, 5)
    bad = [1, 2, 3, 4, 5, 6]
    good = np.setdiff1d(np.arange(LANES), bad)
    np.testing.assert_array_equal(np.flatnonzero(w[5] == 0.0), [*bad, 7])
    np.testing.assert_allclose(w[3, good], 1.0 / np.sqrt(2.5), rtol=1e-15)
    np.testing.assert_array_equal(w[3, bad], 1.0)


def test_slots_tile_in_transposes_four_rows(rng):
    source, w = rng.standard_normal((5, 6)), lanes(rng, 9)
    before = w.copy()
    load_tile(w, 3, 8, source, 0 * 6 + 1, 4 * 6 + 2, 2 * 6, 4 * 6 + 2)
    before[3:7, 8:12] = np.stack([source[0, 1:5], source[4, 2:6], source[2, :4], source[4, 2:6]], axis=1)
    np.testing.assert_array_equal(w, before)


@each("dtype", [np.float64, np.float32])
def test_slots_tile_add_adds_repeated_rows_in_turn(rng, dtype):
    total, values = rng.standard_normal((5, 6)), lanes(rng, 9, dtype)
    right = total.copy()
    rows = [1, 3, 1, 1]
    for q, row in enumerate(rows):
        right[row, 2:6] += values[4:8, 12 + q]
    add_tile(total, *(row * 6 + 2 for row in rows), values, 4, 12)
    np.testing.assert_allclose(total, right, rtol=1e-15)


@each("dtype", [np.float64, np.float32])
def test_slots_lane_zeros_start_on_a_cache_line(dtype):
    for shape in [(3, LANES), (0, LANES), (5, 2, 7, LANES)]:
        w = lane_zeros(shape, dtype)
        assert w.shape == shape
        assert w.dtype == dtype
        assert w.size == 0 or w.ctypes.data % slots.CACHE_LINE == 0
        assert w.flags.c_contiguous
        assert not w.any()
