"""Slots and lanes: the vector operations that the small-matrix algebra of `tensorcep.kernels.lanes` is made of.

A *lane array* is C-contiguous, (slots, LANES), float64 or float32; slot s holds one number for each of LANES entries.

Every operation works in one lane array w: ``multiply(w, out, x, y, n)`` is out[q] = x[q] y[q] for the n slots from out,
x and y on. An operand in another array is a pair of that array and its slot, as in ``copy(w, at.a, (Lam, 0), n)``.

What stands below is the Python form of each operation; compiled kernels use what its decorator emits instead
(`tensorcep.kernels.slots_rules`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from tensorcep.core.compile import emitted_by, inlined
from tensorcep.kernels import slots_rules as rules

LANES, PIVOT_FLOOR, FLAGS = rules.LANES, rules.PIVOT_FLOOR, rules.FLAGS
CACHE_LINE = 64


def lane_zeros(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Zeros that start on a cache line, of shape (..., LANES): slots that straddle lines cost half as much again."""
    # Filled, not calloc'ed: numpy asks for huge pages only for memory that it does not get zeroed, and first touches of
    # small pages cost more than a sweep.
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + CACHE_LINE, dtype=np.uint8)
    raw.fill(0)
    first = -raw.__array_interface__["data"][0] % CACHE_LINE
    return np.ndarray(shape, dtype, raw, first)


def place(w: Any, operand: Any) -> Any:
    """The array and the first slot of an operand."""
    return operand if isinstance(operand, tuple) else (w, operand)


@overload(place)
def _place(w, operand):
    if isinstance(operand, types.BaseTuple):
        return lambda w, operand: operand
    return lambda w, operand: (w, operand)


@inlined
def _get(w, operand, q, lane):
    array, first = place(w, operand)
    return float(array[first + q, lane])


@inlined
def _put(w, operand, q, lane, value):
    array, first = place(w, operand)
    array[first + q, lane] = value


@inlined
def _sum(w, x, y, n, lane):
    total = 0.0
    for q in range(n):
        total += _get(w, x, q, lane) * _get(w, y, q, lane)
    return total


@emitted_by(rules.with_dots(lambda b, dot, out: dot))
def dot(w, out, x, y, n):
    """Slot out = sum over q < n of x[q] y[q]."""
    for lane in range(LANES):
        _put(w, out, 0, lane, _sum(w, x, y, n, lane))


@emitted_by(rules.with_dots(lambda b, dot, out: b.fadd(rules.emit_load(b, out), dot, flags=FLAGS)))
def dot_add(w, out, x, y, n):
    """Slot out += sum over q < n of x[q] y[q]."""
    for lane in range(LANES):
        _put(w, out, 0, lane, _get(w, out, 0, lane) + _sum(w, x, y, n, lane))


@emitted_by(rules.with_dots(rules.solved))
def solve_step(w, out, x, y, n, d):
    """Slot out = (out - sum of x[q] y[q]) * d: one step of a factorisation or a forward substitution."""
    for lane in range(LANES):
        _put(w, out, 0, lane, (_get(w, out, 0, lane) - _sum(w, x, y, n, lane)) * _get(w, d, 0, lane))


@emitted_by(rules.with_dots(rules.negated))
def neg_dot_scaled(w, out, x, y, n, d):
    """Slot out = -(sum of x[q] y[q]) * d: one element of an inverse triangle."""
    for lane in range(LANES):
        _put(w, out, 0, lane, -_sum(w, x, y, n, lane) * _get(w, d, 0, lane))


@emitted_by(rules.with_dots(lambda b, dot, out: dot, 2))
def dot_pair(w, o1, o2, x, y1, y2, n):
    """Slots o1, o2 = sum of x[q] y1[q], sum of x[q] y2[q]."""
    dot(w, o1, x, y1, n)
    dot(w, o2, x, y2, n)


@emitted_by(rules.with_dots(rules.solved, 2))
def solve_pair(w, o1, o2, x, y1, y2, n, d):
    """As `solve_step`, for (o1, y1) and (o2, y2)."""
    solve_step(w, o1, x, y1, n, d)
    solve_step(w, o2, x, y2, n, d)


@emitted_by(rules.with_dots(rules.negated, 2))
def neg_pair(w, o1, o2, x, y1, y2, n, d):
    """As `neg_dot_scaled`, for (o1, y1) and (o2, y2)."""
    neg_dot_scaled(w, o1, x, y1, n, d)
    neg_dot_scaled(w, o2, x, y2, n, d)


@emitted_by(rules.rule_of(rules.emit_pivot, 2))
def pivot_step(w, out, x, n, inv_root, ok):
    """p = out - sum of x[q]^2; inv_root = 1/sqrt(p). A lane whose p is not clearly positive gets 1, and ok = 0."""
    for lane in range(LANES):
        diagonal = _get(w, out, 0, lane)
        pivot = diagonal - _sum(w, x, x, n, lane)
        good = pivot > diagonal * PIVOT_FLOOR
        _put(w, inv_root, 0, lane, 1.0 / math.sqrt(pivot) if good else 1.0)
        if not good:
            _put(w, ok, 0, lane, 0.0)


@emitted_by(rules.elementwise(lambda b, x, y, c: rules.emit_add_product(b, x, c, y)))
def axpy(w, out, x, y, n, factor):
    """out[q] = x[q] + factor * y[q] for q < n."""
    for lane in range(LANES):
        c = _get(w, factor, 0, lane)
        for q in range(n):
            _put(w, out, q, lane, _get(w, x, q, lane) + c * _get(w, y, q, lane))


@emitted_by(rules.elementwise(lambda b, x, y: b.fmul(x, y, flags=FLAGS)))
def multiply(w, out, x, y, n):
    """out[q] = x[q] * y[q] for q < n."""
    for lane in range(LANES):
        for q in range(n):
            _put(w, out, q, lane, _get(w, x, q, lane) * _get(w, y, q, lane))


@emitted_by(rules.elementwise(lambda b, x, y: b.fsub(x, y, flags=FLAGS)))
def subtract(w, out, x, y, n):
    """out[q] = x[q] - y[q] for q < n."""
    for lane in range(LANES):
        for q in range(n):
            _put(w, out, q, lane, _get(w, x, q, lane) - _get(w, y, q, lane))


@emitted_by(rules.elementwise(lambda b, x, c: b.fmul(c, x, flags=FLAGS), two=False))
def scale(w, out, x, n, factor):
    """out[q] = factor * x[q] for q < n."""
    for lane in range(LANES):
        c = _get(w, factor, 0, lane)
        for q in range(n):
            _put(w, out, q, lane, c * _get(w, x, q, lane))


@emitted_by(rules.elementwise(lambda b, x: x, two=False))
def copy(w, out, x, n):
    """out[q] = x[q] for q < n."""
    for lane in range(LANES):
        for q in range(n):
            _put(w, out, q, lane, _get(w, x, q, lane))


@emitted_by(rules.elementwise(rules.damped))
def damp(w, out, x, y, n, factor):
    """out[q] = x[q] + factor * (y[q] - x[q]) for q < n where factor > 0, else x[q] (y may then hold nan)."""
    for lane in range(LANES):
        c = _get(w, factor, 0, lane)
        for q in range(n):
            x_q = _get(w, x, q, lane)
            _put(w, out, q, lane, x_q + c * (_get(w, y, q, lane) - x_q) if c > 0.0 else x_q)


@emitted_by(rules.tile_in)
def tile_in(w, o, lane, source, f0, f1, f2, f3):
    """Four numbers from each flat offset f0..f3 of float64 source to slots o..o+3 of lanes lane..lane+3."""
    width = source.shape[1]
    for q, flat in enumerate((f0, f1, f2, f3)):
        for j in range(4):
            w[o + j, lane + q] = source[flat // width, flat % width + j]


@emitted_by(rules.tile_add)
def tile_add(total, f0, f1, f2, f3, values, o, lane):
    """Add slots o..o+3 of lanes lane..lane+3 to four numbers at each flat offset f0..f3 of float64 total, in turn."""
    width = total.shape[1]
    for q, flat in enumerate((f0, f1, f2, f3)):
        for j in range(4):
            total[flat // width, flat % width + j] += values[o + j, lane + q]
