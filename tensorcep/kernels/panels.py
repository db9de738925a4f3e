"""Elimination of a few lines of a symmetric matrix, whose vectors stay in registers all the time.

By operations that load and store them, most of the time goes into waiting for what was just stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from tensorcep.core.jit import emitted_by
from tensorcep.kernels.outer import COLUMNS, VECTOR, data_of, everywhere, vector_at
from tensorcep.kernels.slots_rules import FLAGS, emit_add_product, emit_product

# Lines of the smaller operation: matrices that are no larger need not wait for pivots that are 1.
FEW = 2


def _numbers(values: list[float]) -> Any:
    return ir.Constant(VECTOR, values)


def _lines(builder: Any, A: Any, o: Any, stride: Any, size: int) -> list[Any]:
    """Pointers to lines that are `stride` apart."""
    starts = [builder.add(o, builder.mul(stride, ir.Constant(o.type, i))) for i in range(size)]
    return [vector_at(builder, A, start) for start in starts]


def _one(builder: Any, x: Any, i: int) -> Any:
    """Number i of a vector in all places of another."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), [i] * COLUMNS)
    return builder.shuffle_vector(x, x, mask)


def _below(builder: Any, places: Sequence[int], n: Any) -> Any:
    """The mask of the places of a vector whose numbers are below n."""
    many = ir.VectorType(n.type, COLUMNS)
    nothing, zeros = ir.Constant(many, ir.Undefined), ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), None)
    all_n = builder.shuffle_vector(builder.insert_element(nothing, n, ir.IntType(32)(0)), nothing, zeros)
    return builder.icmp_signed("<", ir.Constant(many, list(places)), all_n)


def _first(builder: Any, n: Any) -> Any:
    """The mask of the first n places of a vector."""
    return _below(builder, range(COLUMNS), n)


def _triangle(builder: Any, V: Any, o: Any, D: Any) -> list[tuple[Any, Any]]:
    """The places of COLUMNS lines of a packed lower triangle of D lines from V[o] on, and masks of what they have.

    A mask is a comparison of vectors: LLVM 22 loads the upper half of one that is chosen by a number as if it were all
    ones, where vectors have four numbers.
    """
    found = []
    for i in range(COLUMNS):
        used = _below(builder, [i if j <= i else COLUMNS for j in range(COLUMNS)], D)
        found.append((vector_at(builder, V, o, i * (i + 1) // 2), used))
    return found


def _load(builder: Any, place: Any, mask: Any) -> Any:
    """The numbers that a mask has, zeros elsewhere; what it has not need not be memory."""
    kind = ir.FunctionType(VECTOR, [place.type, ir.IntType(32), mask.type, VECTOR])
    load = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.v{COLUMNS}f64.p0v{COLUMNS}f64")
    return builder.call(load, [place, ir.IntType(32)(8), mask, _numbers([0.0] * COLUMNS)])


def _store(builder: Any, value: Any, place: Any, mask: Any) -> None:
    kind = ir.FunctionType(ir.VoidType(), [VECTOR, place.type, ir.IntType(32), mask.type])
    store = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.v{COLUMNS}f64.p0v{COLUMNS}f64")
    builder.call(store, [value, place, ir.IntType(32)(8), mask])


def _chosen(builder: Any, which: list[bool], x: Any, y: Any) -> Any:
    """The numbers of x in some places, those of y in others."""
    return builder.select(ir.Constant(ir.VectorType(ir.IntType(1), COLUMNS), which), x, y)


def _eliminate(builder: Any, lines: list[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Lines of the inverse of the unit triangular factor, all inverse pivots in vectors, and multiples of lines.

    What is above the diagonal is read alone.
    """
    size = len(lines)
    units = [_numbers([float(i == j) for j in range(COLUMNS)]) for i in range(size)]
    inverses, multiples = [], []
    for k in range(size):
        inverse = builder.fdiv(_numbers([1.0] * COLUMNS), _one(builder, lines[k], k))
        less = builder.fneg(inverse)
        multiple, unit = emit_product(builder, less, lines[k]), emit_product(builder, less, units[k])
        for i in range(k + 1, size):
            factor = _one(builder, lines[k], i)
            lines[i] = emit_add_product(builder, lines[i], factor, multiple)
            units[i] = emit_add_product(builder, units[i], factor, unit)
        inverses.append(inverse)
        multiples.append(multiple)
    return units, inverses, multiples


def _panel(A: Any, o: Any, stride: Any, inverse: Any, p: Any, out: Any) -> Any:
    """The rule of `eliminate_lines`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        A, o, stride, inverse, p, out = data_of(context, builder, signature, args)
        lines = [builder.load(line, align=8) for line in _lines(builder, A, o, stride, COLUMNS)]
        units, inverses, _ = _eliminate(builder, lines)
        for i, unit in enumerate(units):
            builder.store(unit, vector_at(builder, out, ir.Constant(o.type, i * COLUMNS)), align=8)
        builder.store(_inverse_of(builder, inverses), vector_at(builder, inverse, p), align=8)
        return context.get_dummy_value()

    return types.void(A, types.intp, types.intp, inverse, types.intp, out), codegen


def _inverse_of(builder: Any, inverses: list[Any]) -> Any:
    """One vector of them all, ones behind."""
    found = _numbers([1.0] * COLUMNS)
    for k, inverse in enumerate(inverses):
        found = _chosen(builder, [j == k for j in range(COLUMNS)], inverse, found)
    return found


def _root(builder: Any, x: Any) -> Any:
    kind = ir.FunctionType(VECTOR, [VECTOR])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.sqrt.v{COLUMNS}f64"), [x])


def _block(size: int) -> Callable[..., Any]:
    """The rule of an operation on `size` lines."""

    def rule(*kinds: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            A, h, given, q, field, between, o, D, E, precision, V, p, y, inverse, following = data_of(
                context, builder, signature, args
            )
            nothing, stride = ir.Constant(o.type, 0), ir.Constant(o.type, COLUMNS)
            own, to = _first(builder, D), vector_at(builder, h, nothing)
            lines = [builder.load(line, align=8) for line in _lines(builder, A, nothing, stride, size)]
            x, c = (_load(builder, vector_at(builder, *one), own) for one in ((field, o), (given, q)))
            x = emit_add_product(builder, x, everywhere(builder, precision), c)
            x = builder.fadd(x, builder.load(to, align=8), flags=FLAGS)
            c = _load(builder, vector_at(builder, between, o), _first(builder, E))
            units, inverses, multiples = _eliminate(builder, lines)
            for k, multiple in enumerate(multiples):
                later = _chosen(builder, [j > k for j in range(COLUMNS)], multiple, _numbers([0.0] * COLUMNS))
                x = emit_add_product(builder, x, _one(builder, x, k), later)
            whole = _inverse_of(builder, inverses)
            roots = _root(builder, whole)
            builder.store(whole, vector_at(builder, inverse, nothing), align=8)
            _store(builder, emit_product(builder, roots, x), vector_at(builder, y, o), own)
            for k, (line, mask) in enumerate(_triangle(builder, V, p, D)[:size]):
                _store(builder, emit_product(builder, _one(builder, roots, k), units[k]), line, mask)
            moved = [emit_product(builder, unit, c) for unit in units]
            scaled = [emit_product(builder, one, line) for one, line in zip(inverses, moved, strict=True)]
            for i, line in enumerate(_lines(builder, following, nothing, stride, size)):
                total = builder.load(line, align=8)
                for k in range(i, size):
                    less = builder.fneg(_one(builder, moved[k], i), flags=FLAGS)
                    total = emit_add_product(builder, total, less, scaled[k])
                builder.store(total, line, align=8)
            ahead = _numbers([0.0] * COLUMNS)
            for k in range(size):
                ahead = emit_add_product(builder, ahead, _one(builder, x, k), scaled[k])
            builder.store(ahead, to, align=8)
            return context.get_dummy_value()

        return types.void(*kinds), codegen

    return rule


def _sums_of_lines(builder: Any, lines: list[Any]) -> Any:
    """The vector of the sums of COLUMNS vectors."""
    half = COLUMNS
    while len(lines) > 1:  # two of them become one, whose pieces of half the size hold the halves of both, added
        half //= 2
        at = [piece * 2 * half + j for piece in range(COLUMNS // (2 * half)) for j in range(half)]
        low = [
            place + other
            for first in range(0, len(at), half)
            for other in (0, COLUMNS)
            for place in at[first : first + half]
        ]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), [i + move for i in low]) for move in (0, half)]
        pairs = zip(lines[: len(lines) // 2], lines[len(lines) // 2 :], strict=True)
        lines = [builder.fadd(*(builder.shuffle_vector(x, y, mask) for mask in masks), flags=FLAGS) for x, y in pairs]
    return lines[0]


def _mean(*kinds: Any) -> Any:
    """The rule of `mean_of_block`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        V, p, y, noise, between, o, D, E, x, out = data_of(context, builder, signature, args)
        nothing, own = ir.Constant(o.type, 0), _first(builder, D)
        lines, to = [_load(builder, *line) for line in _triangle(builder, V, p, D)], vector_at(builder, x, nothing)
        moved = _load(builder, vector_at(builder, between, o), _first(builder, E))
        moved = emit_product(builder, moved, builder.load(to, align=8))
        sums = _sums_of_lines(builder, [emit_product(builder, line, moved) for line in lines])
        rest = _load(builder, vector_at(builder, y, o), own)
        rest = builder.fadd(rest, _load(builder, vector_at(builder, noise, nothing), own), flags=FLAGS)
        sums, total = builder.fadd(sums, rest, flags=FLAGS), _numbers([0.0] * COLUMNS)
        for i, line in enumerate(lines):
            total = emit_add_product(builder, total, _one(builder, sums, i), line)
        builder.store(total, to, align=8)
        _store(builder, total, vector_at(builder, out, o), own)
        return context.get_dummy_value()

    return types.void(*kinds), codegen


def _eliminated(size: int, A: Any, o: int, stride: int, inverse: Any, p: int, out: Any, h: Any = None) -> None:
    """The Python form of elimination; h (COLUMNS,) becomes out h."""
    flat, inverse[p : p + COLUMNS] = A.reshape(-1), 1.0
    lines = np.array([flat[o + i * stride : o + i * stride + COLUMNS] for i in range(size)])
    out[:size] = np.eye(size, COLUMNS)
    for k in range(size):
        inverse[p + k] = 1.0 / lines[k, k]
        for i in range(k + 1, size):
            factor = -lines[k, i] * inverse[p + k]
            lines[i] += factor * lines[k]
            out[i] += factor * out[k]
            if h is not None:
                h[i] += factor * h[k]


def _eliminated_block(
    size: int, A: Any, h: Any, given: Any, q: int, field: Any, between: Any, o: int, D: int, E: int, precision: float,
    V: Any, p: int, y: Any, inverse: Any, following: Any,
) -> None:  # fmt: skip
    """The Python form of the operations."""
    x, c, root, (row, column) = h.ravel().copy(), np.zeros(COLUMNS), np.zeros((COLUMNS, COLUMNS)), np.tril_indices(D)
    x[:D] += precision * given.reshape(-1)[q : q + D] + field.reshape(-1)[o : o + D]
    c[:E] = between.reshape(-1)[o : o + E]
    _eliminated(size, A, 0, COLUMNS, inverse, 0, root, x)
    moved, roots = root[:size] * c, np.sqrt(inverse)
    scaled = inverse[:size, None] * moved
    for i in range(size):
        following[i] -= moved[i:, i] @ scaled[i:]
    h.reshape(-1)[:] = x[:size] @ scaled
    y.reshape(-1)[o : o + D] = (roots * x)[:D]
    V.reshape(-1)[p : p + len(row)] = (root * roots[:, None])[row, column]


@emitted_by(_panel, checkable=False)
def eliminate_lines(A, o, stride, inverse, p, out):
    """Find what makes COLUMNS lines of a symmetric A diagonal, `stride` apart from A[o] on.

    `out` (COLUMNS, COLUMNS) is the inverse of the unit triangular factor of these lines, and `inverse` has from p on
    the inverse of the diagonal of out A out'. What A has below its diagonal is not read.
    """
    _eliminated(COLUMNS, A, o, stride, inverse, p, out)


@emitted_by(_block(COLUMNS), checkable=False)
def eliminate_block(A, h, given, q, field, between, o, D, E, precision, V, p, y, inverse, following):
    """Eliminate a block of a chain, D <= COLUMNS lines, which is coupled with the next one by diag(between).

    A and `following` are (COLUMNS, COLUMNS), of which what is above the diagonal counts, h and `inverse` (COLUMNS,).
    V, y, given, field and between are flat here, and the block's numbers begin at V[p], given[q] and at number o of
    others; `between` has E of them. The precision A = L L' becomes L^-1, packed in V, the natural mean h + precision
    given + field becomes y = L^-1 times itself, and `inverse` are the inverse squares of the diagonal of L. What
    the next block has from this one is taken off `following`, and is h then.
    """
    _eliminated_block(COLUMNS, A, h, given, q, field, between, o, D, E, precision, V, p, y, inverse, following)


@emitted_by(_block(FEW), checkable=False)
def eliminate_few(A, h, given, q, field, between, o, D, E, precision, V, p, y, inverse, following):
    """As `eliminate_block`, of D <= FEW lines."""
    _eliminated_block(FEW, A, h, given, q, field, between, o, D, E, precision, V, p, y, inverse, following)


@emitted_by(_mean, checkable=False)
def mean_of_block(V, p, y, noise, between, o, D, E, x, out):
    """x = V' (y + noise + V (between x)) for a packed lower triangle of D <= COLUMNS lines; to `out`, too.

    V, y, between and out are flat here, as in `eliminate_block`; noise and x are (COLUMNS,).
    """
    root, x_between, rest, (row, column) = (
        np.zeros((COLUMNS, COLUMNS)),
        np.zeros(COLUMNS),
        noise.copy(),
        np.tril_indices(D),
    )
    root[row, column] = V.reshape(-1)[p : p + len(row)]
    x_between[:E] = between.reshape(-1)[o : o + E] * x[:E]
    rest[:D] += y.reshape(-1)[o : o + D]
    x[:] = root.T @ (rest + root @ x_between)
    out.reshape(-1)[o : o + D] = x[:D]
