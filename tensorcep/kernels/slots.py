"""Slots and lanes: the vector operations that the small-matrix algebra of `tensorcep.kernels.lanes` is made of.

A *lane array* is C-contiguous, (slots, LANES), float64 or float32; slot s holds one number for each of LANES entries.
The operations run over consecutive slots: a dot product, whose sum stays in vector registers, and elementwise ones.
They are LLVM IR because numba's loop vectoriser gives up on them: it cannot prove that the output does not overlap the
inputs. Arithmetic is float64; float32 slots are converted as they are loaded and stored.

Every operation has the same form, ``f(out, o, x, i, y, j, n, c, k)``: the result starts at slot o of out, the operands
at slot i of x and slot j of y, n slots long, and slot k of c is a factor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

# 16 float64 are four AVX2 or two AVX-512 registers: enough independent sums to hide the latency of the multiply-add,
# while the work arrays of one block still fit the first-level cache at the usual ranks.
LANES = 16
CACHE_LINE = 64

# A pivot below this fraction of its diagonal entry means "not positive definite" (rounding in a rank-50 factorisation
# of a well-conditioned matrix stays below 1e-14).
PIVOT_FLOOR = 1e-13

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_FLAGS = ("reassoc", "contract", "arcp", "nsz")


def lane_zeros(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    """Zeros of shape (..., LANES) that start on a cache line: slots that straddle lines cost half as much again.

    Filled, not calloc'ed: numpy asks for huge pages only for memory that it does not get zeroed, and first touches of
    small pages cost more than a sweep.
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    raw = np.empty(size + CACHE_LINE, dtype=np.uint8)
    raw.fill(0)
    first = -raw.ctypes.data % CACHE_LINE
    return raw[first : first + size].view(dtype).reshape(shape)


def _constant(x: float) -> Any:
    return ir.Constant(_VECTOR, [x] * LANES)


def _slot(context: Any, builder: Any, array_type: Any, array: Any, slot: Any) -> Any:
    """Pointer to one slot of a lane array of float64 or float32."""
    data = context.make_array(array_type)(context, builder, value=array).data
    offset = builder.mul(slot, ir.Constant(slot.type, LANES))
    return builder.bitcast(
        builder.gep(data, [offset], inbounds=True), ir.VectorType(data.type.pointee, LANES).as_pointer()
    )


def _load(builder: Any, pointer: Any) -> Any:
    """Load a slot as float64."""
    value = builder.load(pointer, align=4)
    return value if value.type == _VECTOR else builder.fpext(value, _VECTOR)


def _store(builder: Any, value: Any, pointer: Any) -> None:
    """Store a slot in the array's own precision."""
    stored = pointer.type.pointee
    builder.store(value if stored == _VECTOR else builder.fptrunc(value, stored), pointer, align=4)


def emit_add_product(builder: Any, x: Any, y: Any, z: Any) -> Any:
    return builder.fadd(x, builder.fmul(y, z, flags=_FLAGS), flags=_FLAGS)


def emit_loop(builder: Any, n: Any, start: list[Any], body: Callable[[Any, list[Any]], list[Any]]) -> list[Any]:
    """Emit ``totals = body(q, totals)`` for q in range(n) from totals = start, in registers; returns the totals."""
    before = builder.block
    loop = builder.append_basic_block("slots")
    after = builder.append_basic_block("slots.end")
    builder.cbranch(builder.icmp_signed(">", n, ir.Constant(n.type, 0)), loop, after)
    builder.position_at_end(loop)
    q = builder.phi(n.type)
    totals = [builder.phi(first.type) for first in start]
    new_totals = body(q, totals)
    next_q = builder.add(q, ir.Constant(n.type, 1))
    q.add_incoming(ir.Constant(n.type, 0), before)
    q.add_incoming(next_q, loop)
    for total, first, new in zip(totals, start, new_totals, strict=True):
        total.add_incoming(first, before)
        total.add_incoming(new, loop)
    builder.cbranch(builder.icmp_signed("<", next_q, n), loop, after)
    builder.position_at_end(after)
    results = [builder.phi(first.type) for first in start]
    for result, first, new in zip(results, start, new_totals, strict=True):
        result.add_incoming(first, before)
        result.add_incoming(new, loop)
    return results


def _at(builder: Any, pointer: Any, q: Any) -> Any:
    return builder.gep(pointer, [q], inbounds=True)


def _dot_loop(builder: Any, x: Any, y: Any, n: Any) -> Any:
    """Emit sum_q x[q]*y[q] over n slots; returns the vector value."""

    def body(q: Any, totals: list[Any]) -> list[Any]:
        return [
            emit_add_product(builder, totals[0], _load(builder, _at(builder, x, q)), _load(builder, _at(builder, y, q)))
        ]

    return emit_loop(builder, n, [_constant(0.0)], body)[0]


def _dot_then(store: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """A type-and-code rule for ``f(out, o, x, i, y, j, n, d, k)``: out[o] = store(dot, old out[o], d[k])."""

    def rule(out: Any, x: Any, y: Any, d: Any) -> Any:
        signature = types.void(out, types.intp, x, types.intp, y, types.intp, types.intp, d, types.intp)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            p_out, p_x, p_y, p_d = (
                _slot(context, builder, signature.args[a], args[a], args[a + 1]) for a in (0, 2, 4, 7)
            )
            dot = _dot_loop(builder, p_x, p_y, args[6])
            _store(builder, store(builder, dot, p_out, p_d), p_out)
            return context.get_dummy_value()

        return signature, codegen

    return rule


def _elementwise(combine: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """A type-and-code rule for ``f(out, o, x, i, y, j, n, c, k)``: out[o+q] = combine(x[i+q], y[j+q], c[k]), q < n."""

    def rule(out: Any, x: Any, y: Any, c: Any) -> Any:
        signature = types.void(out, types.intp, x, types.intp, y, types.intp, types.intp, c, types.intp)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            p_out, p_x, p_y, p_c = (
                _slot(context, builder, signature.args[a], args[a], args[a + 1]) for a in (0, 2, 4, 7)
            )
            factor = _load(builder, p_c)

            def body(q: Any, totals: list[Any]) -> list[Any]:
                x_q, y_q = _load(builder, _at(builder, p_x, q)), _load(builder, _at(builder, p_y, q))
                _store(builder, combine(builder, x_q, y_q, factor), _at(builder, p_out, q))
                return totals

            emit_loop(builder, args[6], [], body)
            return context.get_dummy_value()

        return signature, codegen

    return rule


def _store_solve(builder: Any, dot: Any, out: Any, d: Any) -> Any:
    return builder.fmul(builder.fsub(_load(builder, out), dot, flags=_FLAGS), _load(builder, d), flags=_FLAGS)


def _store_neg(builder: Any, dot: Any, out: Any, d: Any) -> Any:
    return builder.fneg(builder.fmul(dot, _load(builder, d), flags=_FLAGS))


def _store_dot(builder: Any, dot: Any, out: Any, d: Any) -> Any:
    return dot


_dot_rule, _solve_rule, _neg_rule = (_dot_then(store) for store in (_store_dot, _store_solve, _store_neg))
_dot_add_rule = _dot_then(lambda b, dot, out, d: b.fadd(_load(b, out), dot, flags=_FLAGS))
_axpy_rule = _elementwise(lambda b, x, y, c: emit_add_product(b, x, c, y))
_multiply_rule = _elementwise(lambda b, x, y, c: b.fmul(x, y, flags=_FLAGS))
_subtract_rule = _elementwise(lambda b, x, y, c: b.fsub(x, y, flags=_FLAGS))
_scale_rule = _elementwise(lambda b, x, y, c: b.fmul(c, x, flags=_FLAGS))
_copy_rule = _elementwise(lambda b, x, y, c: x)
_damp_rule = _elementwise(
    lambda b, x, y, c: b.select(
        b.fcmp_ordered(">", c, _constant(0.0)), emit_add_product(b, x, c, b.fsub(y, x, flags=_FLAGS)), x
    )
)


@intrinsic
def dot(typing_context, out, o, x, i, y, j, n, d, k):
    """out[o] = sum_q x[i+q] y[j+q] (d, k unused)."""
    return _dot_rule(out, x, y, d)


@intrinsic
def dot_add(typing_context, out, o, x, i, y, j, n, d, k):
    """out[o] += sum_q x[i+q] y[j+q] (d, k unused)."""
    return _dot_add_rule(out, x, y, d)


@intrinsic
def solve_step(typing_context, out, o, x, i, y, j, n, d, k):
    """out[o] = (out[o] - sum_q x[i+q] y[j+q]) * d[k]: one step of a factorisation or a forward substitution."""
    return _solve_rule(out, x, y, d)


@intrinsic
def neg_dot_scaled(typing_context, out, o, x, i, y, j, n, d, k):
    """out[o] = -(sum_q x[i+q] y[j+q]) * d[k]: one element of an inverse triangle."""
    return _neg_rule(out, x, y, d)


@intrinsic
def axpy(typing_context, out, o, x, i, y, j, n, c, k):
    """out[o+q] = x[i+q] + c[k] * y[j+q] for q < n."""
    return _axpy_rule(out, x, y, c)


@intrinsic
def multiply(typing_context, out, o, x, i, y, j, n, c, k):
    """out[o+q] = x[i+q] * y[j+q] for q < n (c, k unused)."""
    return _multiply_rule(out, x, y, c)


@intrinsic
def subtract(typing_context, out, o, x, i, y, j, n, c, k):
    """out[o+q] = x[i+q] - y[j+q] for q < n (c, k unused)."""
    return _subtract_rule(out, x, y, c)


@intrinsic
def scale(typing_context, out, o, x, i, y, j, n, c, k):
    """out[o+q] = c[k] * x[i+q] for q < n (y, j unused)."""
    return _scale_rule(out, x, y, c)


@intrinsic
def copy(typing_context, out, o, x, i, y, j, n, c, k):
    """out[o+q] = x[i+q] for q < n (y, j, c, k unused)."""
    return _copy_rule(out, x, y, c)


@intrinsic
def damp(typing_context, out, o, x, i, y, j, n, c, k):
    """out[o+q] = x[i+q] + c[k] * (y[j+q] - x[i+q]) for q < n where c[k] > 0, else x[i+q] (y may then hold nan)."""
    return _damp_rule(out, x, y, c)


def _pair_then(store: Callable[[Any, Any, Any, Any], Any]) -> Any:
    """A rule for ``f(w, o1, o2, x, y1, y2, n, d)``: as `_dot_then` for two results that share the operand x.

    Loading x once for two sums is worth a quarter of the time: the loads, not the multiply-adds, are the limit.
    """

    def rule(w: Any) -> Any:
        signature = types.void(w, *(types.intp,) * 7)

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            p = [_slot(context, builder, signature.args[0], args[0], args[a]) for a in (1, 2, 3, 4, 5, 7)]
            zero = _constant(0.0)

            def body(q: Any, totals: list[Any]) -> list[Any]:
                x = _load(builder, _at(builder, p[2], q))
                ys = [_load(builder, _at(builder, y, q)) for y in p[3:5]]
                return [emit_add_product(builder, total, x, y) for total, y in zip(totals, ys, strict=True)]

            dots = emit_loop(builder, args[6], [zero, zero], body)
            for out, dot in zip(p[:2], dots, strict=True):
                _store(builder, store(builder, dot, out, p[5]), out)
            return context.get_dummy_value()

        return signature, codegen

    return rule


_dot_pair_rule, _solve_pair_rule, _neg_pair_rule = (
    _pair_then(store) for store in (_store_dot, _store_solve, _store_neg)
)


@intrinsic
def dot_pair(typing_context, w, o1, o2, x, y1, y2, n, d):
    """w[o1], w[o2] = sum_q w[x+q] w[y1+q], sum_q w[x+q] w[y2+q] (d unused)."""
    return _dot_pair_rule(w)


@intrinsic
def solve_pair(typing_context, w, o1, o2, x, y1, y2, n, d):
    """w[o] = (w[o] - sum_q w[x+q] w[y+q]) * w[d] for (o1, y1) and (o2, y2)."""
    return _solve_pair_rule(w)


@intrinsic
def neg_pair(typing_context, w, o1, o2, x, y1, y2, n, d):
    """w[o] = -(sum_q w[x+q] w[y+q]) * w[d] for (o1, y1) and (o2, y2)."""
    return _neg_pair_rule(w)


@intrinsic
def pivot_step(typing_context, w, o, i, n, k, ok):
    """p = w[o] - sum_q w[i+q]^2; w[k] = 1/sqrt(p). A lane whose p is not clearly positive gets 1, and w[ok] = 0."""
    signature = types.void(w, types.intp, types.intp, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        p_o, p_i, p_k, p_ok = (_slot(context, builder, signature.args[0], args[0], args[a]) for a in (1, 2, 4, 5))
        diagonal = _load(builder, p_o)
        pivot = builder.fsub(diagonal, _dot_loop(builder, p_i, p_i, args[3]), flags=_FLAGS)
        good = builder.fcmp_ordered(">", pivot, builder.fmul(diagonal, _constant(PIVOT_FLOOR)))
        sqrt_type = ir.FunctionType(_VECTOR, [_VECTOR])
        sqrt = cgutils.get_or_insert_function(builder.module, sqrt_type, f"llvm.sqrt.v{LANES}f64")
        root = builder.call(sqrt, [builder.select(good, pivot, _constant(1.0))])
        _store(builder, builder.fdiv(_constant(1.0), root), p_k)
        _store(builder, builder.select(good, _load(builder, p_ok), _constant(0.0)), p_ok)
        return context.get_dummy_value()

    return signature, codegen


_TILE = ir.VectorType(ir.DoubleType(), 4)


def _tile(builder: Any, pointer: Any, element: Any) -> Any:
    return builder.bitcast(pointer, ir.PointerType(ir.VectorType(element, 4)))


def _shuffle(builder: Any, a: Any, b: Any, mask: tuple[int, ...]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), 4), list(mask)))


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose a 4 x 4 tile held as four vectors."""
    a, b, c, d = rows
    low = [_shuffle(builder, x, y, (0, 4, 2, 6)) for x, y in ((a, b), (c, d))]
    high = [_shuffle(builder, x, y, (1, 5, 3, 7)) for x, y in ((a, b), (c, d))]
    halves = [((0, 1, 4, 5), low), ((0, 1, 4, 5), high), ((2, 3, 6, 7), low), ((2, 3, 6, 7), high)]
    return [_shuffle(builder, pair[0], pair[1], mask) for mask, pair in halves]


def _tile_pointers(context: Any, builder: Any, array_type: Any, array: Any, offsets: list[Any]) -> list[Any]:
    data = context.make_array(array_type)(context, builder, value=array).data
    element = ir.DoubleType() if array_type.dtype == types.float64 else ir.FloatType()
    return [_tile(builder, builder.gep(data, [offset], inbounds=True), element) for offset in offsets]


@intrinsic
def tile_in(typing_context, w, o, lane, source, f0, f1, f2, f3):
    """Four numbers from each flat offset f0..f3 of float64 source to slots o..o+3 of lanes lane..lane+3."""
    signature = types.void(w, types.intp, types.intp, source, *(types.intp,) * 4)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        rows = _tile_pointers(context, builder, signature.args[3], args[3], list(args[4:]))
        columns = _transpose(builder, [builder.load(row, align=8) for row in rows])
        first = builder.add(builder.mul(args[1], ir.Constant(args[1].type, LANES)), args[2])
        slots = [builder.add(first, ir.Constant(first.type, LANES * j)) for j in range(4)]
        for pointer, column in zip(
            _tile_pointers(context, builder, signature.args[0], args[0], slots), columns, strict=True
        ):
            builder.store(column, pointer, align=8)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def tile_add(typing_context, total, f0, f1, f2, f3, values, o, lane):
    """Add slots o..o+3 of lanes lane..lane+3 to four numbers at each flat offset f0..f3 of float64 total, in turn."""
    signature = types.void(total, *(types.intp,) * 4, values, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        first = builder.add(builder.mul(args[6], ir.Constant(args[6].type, LANES)), args[7])
        slots = [builder.add(first, ir.Constant(first.type, LANES * j)) for j in range(4)]
        loaded = [builder.load(p, align=4) for p in _tile_pointers(context, builder, signature.args[5], args[5], slots)]
        loaded = [x if x.type == _TILE else builder.fpext(x, _TILE) for x in loaded]
        rows = _tile_pointers(context, builder, signature.args[0], args[0], list(args[1:5]))
        for pointer, values in zip(rows, _transpose(builder, loaded), strict=True):
            builder.store(builder.fadd(builder.load(pointer, align=8), values), pointer, align=8)
        return context.get_dummy_value()

    return signature, codegen
