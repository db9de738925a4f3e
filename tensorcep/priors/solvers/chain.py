"""Block-tridiagonal precisions: factors, draws and marginals of rows that are coupled in a chain."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from tensorcep.core.compile import block_kernel, emitted_by, inlined, kernel
from tensorcep.core.packing import diagonal, pack, unpack
from tensorcep.core.random import normals, start_stream
from tensorcep.kernels.rank_update import (
    COLUMNS,
    ROWS,
    VECTOR,
    add_row,
    add_tile,
    data_of,
    everywhere,
    multiply_rows,
    padded,
    scale_row,
    vector_at,
)
from tensorcep.kernels.slots_rules import FLAGS, emit_add_product, emit_product

# Elimination of a few lines of a symmetric matrix, whose vectors stay in registers all the time.
#
# By operations that load and store them, most of the time goes into waiting for what was just stored.

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


def _load_panel(builder: Any, place: Any, mask: Any) -> Any:
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
            x, c = (_load_panel(builder, vector_at(builder, *one), own) for one in ((field, o), (given, q)))
            x = emit_add_product(builder, x, everywhere(builder, precision), c)
            x = builder.fadd(x, builder.load(to, align=8), flags=FLAGS)
            c = _load_panel(builder, vector_at(builder, between, o), _first(builder, E))
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
        lines, to = (
            [_load_panel(builder, *line) for line in _triangle(builder, V, p, D)],
            vector_at(builder, x, nothing),
        )
        moved = _load_panel(builder, vector_at(builder, between, o), _first(builder, E))
        moved = emit_product(builder, moved, builder.load(to, align=8))
        sums = _sums_of_lines(builder, [emit_product(builder, line, moved) for line in lines])
        rest = _load_panel(builder, vector_at(builder, y, o), own)
        rest = builder.fadd(rest, _load_panel(builder, vector_at(builder, noise, nothing), own), flags=FLAGS)
        sums, total = builder.fadd(sums, rest, flags=FLAGS), _numbers([0.0] * COLUMNS)
        for i, line in enumerate(lines):
            total = emit_add_product(builder, total, _one(builder, sums, i), line)
        builder.store(total, to, align=8)
        _store(builder, total, vector_at(builder, out, o), own)
        return context.get_dummy_value()

    return types.void(*kinds), codegen


def _eliminated_panel(size: int, A: Any, o: int, stride: int, inverse: Any, p: int, out: Any, h: Any = None) -> None:
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
    _eliminated_panel(size, A, 0, COLUMNS, inverse, 0, root, x)
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
    _eliminated_panel(COLUMNS, A, o, stride, inverse, p, out)


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


# Rows that are coupled in a chain: exact draws and marginals of a Gaussian with a block-tridiagonal precision.
#
# The precision of m blocks of D numbers has blocks Lam_t on its diagonal and -diag(between_t) between block t and block
# t + 1. Elimination forwards factorises
#
#     L_t L_t' = D_t = Lam_t - C_{t-1} D_{t-1}^-1 C_{t-1},  h_t = eta_t + C_{t-1} D_{t-1}^-1 h_{t-1}, C = diag(between).
#
# It is a Kalman filter in information form, linear in the blocks, that knows no transition which could be singular.
# Draws and marginals follow backwards; all that they need are V_t = L_t^-1 and y_t = V_t h_t.
#
# Work arrays have `padded` columns, so that lines are whole vectors: a block's line is worked on at once.
#
# Source: Rue and Held (2005), Gaussian Markov Random Fields, sec. 2.4; Takahashi, Fagan and Chin (1973) for marginals.

# Between these the product of pivots stays before its logarithm is taken: that of each takes as long as much else.
LEAST_PRODUCT, MOST_PRODUCT = 1e-100, 1e100


class Carry(NamedTuple):
    """What elimination of the blocks before a block leaves for it, and room.

    Attributes
    ----------
    start : (S, S)
        What is added to the upper triangle of the block's precision.
    h : (1, S)
        What is added to its natural mean.
    sums : (2,)
        A log determinant, and a product of inverse pivots whose logarithm is not taken off it yet.
    A, following : (S, S), and inverse : (S,)
    more : tuple of arrays
        Room of `_eliminate_many`.
    """

    start: np.ndarray
    h: np.ndarray
    sums: np.ndarray
    A: np.ndarray
    following: np.ndarray
    inverse: np.ndarray
    more: tuple[np.ndarray, ...]


def nothing_before(D: int) -> Carry:
    """What the first block of D numbers begins with."""
    S = padded(D)
    more = np.eye(S), np.zeros((1, S)), np.zeros((COLUMNS, COLUMNS)), np.zeros((COLUMNS, S)), *np.zeros((2, S, S))
    room = np.eye(S), np.eye(S), np.ones(S), (*more, np.empty(D))
    return Carry(np.zeros((S, S)), np.zeros((1, S)), np.array([0.0, 1.0]), *room)


@block_kernel
def _load(q, Lam, precision, t, own, A):
    """The upper triangle of the first D lines of A becomes that of precision Lam[q] + diag(own[t])."""
    for i in range(own.shape[1]):
        row = i * (i + 1) // 2
        for j in range(i + 1):
            A[j, i] = precision * Lam[q, row + j]
        A[i, i] += own[t, i]


@block_kernel
def _times_panel(panel, spare, first, begin, end, M):
    """Lines first:first + COLUMNS of M become `panel` times themselves in the columns begin:end; `spare` is room."""
    S = M.shape[1]
    for j in range(begin, end, COLUMNS):
        for i in range(COLUMNS):
            scale_row(spare, i * S + j, M, (first + i) * S + j, 0.0, COLUMNS)
        for i in range(0, COLUMNS, ROWS):
            add_tile(COLUMNS, panel, i * COLUMNS, 1, COLUMNS, M, first * S + j, S, spare, i * S + j, S)
        for i in range(COLUMNS):
            scale_row(M, (first + i) * S + j, spare, i * S + j, 1.0, COLUMNS)


@block_kernel
def _eliminate_below(first, panel, spare, A, V, h, inverse):
    """Make lines first:first + COLUMNS of A and V ready, of which `panel` is known; take them off those below."""
    last, S = first + COLUMNS, len(A)
    _times_panel(panel, spare, first, last, S, A)
    _times_panel(panel, spare, first, 0, first, V)
    for k in range(COLUMNS):
        scale_row(V, (first + k) * S + first, panel, k * COLUMNS, 1.0, COLUMNS)
        scale_row(spare, k * S + last, A, (first + k) * S + last, -inverse[first + k], S - last)
        add_row(h, last, spare, k * S + last, h[0, first + k], S - last)
    for i in range(last, S, ROWS):
        for j in range(i & -COLUMNS, S, COLUMNS):
            add_tile(COLUMNS, spare, i, S, 1, A, first * S + j, S, A, i * S + j, S)
        for j in range(0, last, COLUMNS):
            add_tile(COLUMNS, spare, i, S, 1, V, first * S + j, S, V, i * S + j, S)


@block_kernel
def _factorise(A, V, h, panel, spare, inverse):
    """V A V' becomes diagonal, with `inverse` (S,) for its inverse, V being lower triangular, and h (1, S) becomes V h.

    A and V are (S, S), more than one panel wide. A is overwritten; `panel` (COLUMNS, COLUMNS) and `spare` (COLUMNS, S)
    are room.
    """
    S = len(A)
    V[:] = 0.0
    for first in range(0, S, COLUMNS):
        eliminate_lines(A, first * S + first, S, inverse, first, panel)
        for i in range(COLUMNS - 1, -1, -1):
            total = h[0, first + i]
            for j in range(i):
                total += panel[i, j] * h[0, first + j]
            h[0, first + i] = total
        _eliminate_below(first, panel, spare, A, V, h, inverse)


@block_kernel
def _take_off(D, V, c, h, inverse, moved, minus, following):
    """Take what a block says of the next one off `following`; h (1, S) becomes what it adds to the natural mean."""
    S = len(V)
    for q in range(D):
        size = (q & -COLUMNS) + COLUMNS
        multiply_rows(moved, q * S, V, q * S, c, 0, size)
        scale_row(minus, q * S, moved, q * S, -inverse[q], size)
    for j in range(0, D, COLUMNS):
        for i in range(0, j + COLUMNS, ROWS):
            add_tile(D - j, moved, j * S + i, S, 1, minus, j * S + j, S, following, i * S + j, S)


@inlined
def _eliminate_many(t, q, given, A, h, V, y, inverse, following, room):
    """As `eliminate_block`, of more lines than one panel has."""
    eta, field, between, precision = given
    root, c, panel, spare, moved, minus, past = room
    m, (D, S) = len(V), (eta.shape[1], len(A))
    for i in range(D):
        h[0, i] += precision * eta[q, i] + field[t, i]
        c[0, i] = between[t, i] if t + 1 < m else 0.0
    _factorise(A, root, h, panel, spare, inverse)
    _take_off(D, root, c, h, inverse, moved, minus, following)
    for i in range(D):
        row, scale, past[i] = i * (i + 1) // 2, math.sqrt(inverse[i]), h[0, i]
        y[t, i] = scale * past[i]
        for j in range(i + 1):
            V[t, row + j] = scale * root[i, j]
    h[:] = 0.0
    for i in range(D):
        add_row(h, 0, minus, i * S, -past[i], (i & -COLUMNS) + COLUMNS)


@kernel
def eliminate(first, Lam, eta, precision, own, field, between, V, y, carry):
    """Eliminate the blocks first:first + k of a chain forwards, which Lam (k, P) and eta (k, D) tell of.

    Gives packed V (m, P) and y (m, D) of these blocks. Both, packed blocks and natural means, are times `precision`,
    beside the diagonal own (m, D) and field (m, D); between is (m - 1, D). `carry` (Carry) has what is before and,
    then, before the next one. V may be Lam. After the last block the log determinant of the whole precision is given,
    NaN if it is not positive definite.
    """
    k, (m, D), P = len(Lam), y.shape, V.shape[1]
    start, h, sums, A, following, inverse, more = carry
    log_det, product = sums[0], sums[1]
    _load(0, Lam, precision, first, own, following)
    for i in range(D):
        for j in range(i + 1):
            following[j, i] += start[j, i]
    for q in range(k):
        A, following = following, A
        t = first + q
        if q + 1 < k:  # in time for what is stored by numbers to be loaded as vectors
            _load(q + 1, Lam, precision, t + 1, own, following)
        else:
            following[:D, :D] = 0.0
        E = D if t + 1 < m else 0
        if D <= FEW:
            eliminate_few(A, h, eta, q * D, field, between, t * D, D, E, precision, V, t * P, y, inverse, following)
        elif len(A) == COLUMNS:
            eliminate_block(A, h, eta, q * D, field, between, t * D, D, E, precision, V, t * P, y, inverse, following)
        else:
            _eliminate_many(t, q, (eta, field, between, precision), A, h, V, y, inverse, following, more)
        for i in range(D):
            if not inverse[i] > 0.0:
                return np.nan
            product *= inverse[i]
            if not LEAST_PRODUCT < product < MOST_PRODUCT:
                log_det -= math.log(product)
                product = 1.0
    for i in range(D):
        for j in range(i + 1):
            start[j, i] = following[j, i]
    sums[0], sums[1] = log_det, product
    return log_det - math.log(product)


@block_kernel
def _draw_block(t, V, y, noise, between, x, rest, out):
    """out[t] and x become V_t' (y_t + noise + V_t C x), x (S,) being the next block before; the last one has none.

    noise and rest are (S,), the latter room.
    """
    m, (D, P) = len(V), (y.shape[1], V.shape[1])
    E = D if t + 1 < m else 0
    if len(x) == COLUMNS:
        mean_of_block(V, t * P, y, noise, between, t * D, D, E, x, out)
        return
    for i in range(D):
        x[i] = x[i] * between[t, i] if i < E else 0.0
    for i in range(D):
        row, total = i * (i + 1) // 2, y[t, i] + noise[i]
        for j in range(i + 1):
            total += V[t, row + j] * x[j]
        rest[i] = total
    for i in range(D):
        row = i * (i + 1) // 2
        x[i] = 0.0
        for j in range(i + 1):
            x[j] += V[t, row + j] * rest[i]
    for i in range(D):
        out[t, i] = x[i]


@kernel
def draw_back(V, y, between, key, out):
    """A draw of all blocks to out (m, D) after `eliminate`; `key` is (seed, sweep, what) of the stream."""
    m, D = y.shape
    S = -(-D // COLUMNS) * COLUMNS
    x, rest, spare, s = np.zeros(S), np.zeros(S), np.empty(S + 1), np.zeros(4, dtype=np.uint64)
    noise, following = np.zeros(S + 1), np.zeros(S + 1)
    for t in range(m, -1, -1):
        noise, following = following, noise
        if t > 0:  # in time for what is stored by numbers to be loaded as vectors
            start_stream(s, key[0], key[1], key[2] * (1 << 32) + t - 1)
            normals(s, D, following, spare)
        if t < m:
            _draw_block(t, V, y, noise, between, x, rest, out)


@block_kernel
def _products(x, y, out, D):
    """out += x' y, all (S, S), of which the first D lines count."""
    S = len(out)
    for i in range(0, S, ROWS):
        for j in range(0, S, COLUMNS):
            add_tile(D, x, i, S, 1, y, j, S, out, i * S + j, S)


@kernel
def marginals_back(V, y, between, mean, cov, cross):
    """Means (m, D), packed covariances (m, P) and Cov(x_t, x_{t+1})_ii, (m - 1, D), after `eliminate`.

    With G_t = D_t^-1 C_t the covariance of block t is D_t^-1 + G_t S_{t+1} G_t'.
    """
    m, D = y.shape
    S = -(-D // COLUMNS) * COLUMNS
    rest, x, nothing = np.zeros(S), np.zeros(S), np.zeros(S)
    root, inverse, moved = np.zeros((S, S)), np.zeros((S, S)), np.zeros((S, S))
    now, between_both = np.zeros((S, S)), np.zeros((S, S))
    for t in range(m - 1, -1, -1):
        _draw_block(t, V, y, nothing, between, x, rest, mean)
        for i in range(D):
            row = i * (i + 1) // 2
            for j in range(i + 1):
                root[i, j] = V[t, row + j]
        inverse[:] = 0.0
        _products(root, root, inverse, D)
        if t < m - 1:
            for i in range(D):
                scale_row(moved, i * S, inverse, i * S, between[t, i], S)
            between_both[:] = 0.0
            _products(now, moved, between_both, D)
            for i in range(D):
                cross[t, i] = between_both[i, i]
            _products(between_both, moved, inverse, D)
        now, inverse = inverse, now
        for i in range(D):
            row = i * (i + 1) // 2
            for j in range(i + 1):
                cov[t, row + j] = now[i, j]


# Rows of a series given their prior and what their entries say: a joint draw, or the moments of all of them.
#
# A circle is folded: block b holds the rows b and n - 1 - b, so that blocks are coupled by diagonals again. An odd
# number of rows gets one more, which is integrated out: a node of precision d that is coupled by d with both ends of
# the edge that closes the circle takes the place of that edge, if the ends' own precisions grow by d.

# Couplings below this are none.
NO_COUPLING = 1e-50


class Blocks(NamedTuple):
    """A chain of m blocks: the arguments of `eliminate`.

    Attributes
    ----------
    Lam, eta : (m, P), (m, D) float64
        What entries say at precision 1, packed.
    precision : float
    own, field : (m, D) float64
        The diagonal of the precision beside it, and the natural mean.
    between : (m - 1, D) float64
        Couplings.
    """

    Lam: np.ndarray
    eta: np.ndarray
    precision: float
    own: np.ndarray
    field: np.ndarray
    between: np.ndarray


class Marginals(NamedTuple):
    """Moments of rows in their order: means (n, D), packed covariances (n, P), and those of neighbours, (E, D).

    `log_det` is that of the joint precision. Rows of a graph hold what their entries said, (n, P) and (n, D); `apart`
    says that their columns are independent of each other by approximation.
    """

    mean: np.ndarray
    cov: np.ndarray
    cross: np.ndarray
    log_det: float
    told: tuple[np.ndarray, np.ndarray] | None = None
    apart: bool = False


class Links(NamedTuple):
    """The prior of the rows with entries of a mode, coupled: precision and natural mean, in D columns.

    Attributes
    ----------
    of : ou_process.Axis or ou_process.Line
        The rows in the order of their times, and whether the last is a neighbour of the first (`closed`).
    own, field : (n, D) float64
        The diagonal of the precision, and precision times mean, in the order of the times.
    between : (E, D) float64
        Less the precision's element of two neighbours.
    """

    of: Any
    own: np.ndarray
    field: np.ndarray
    between: np.ndarray

    def draw(
        self,
        Lam: np.ndarray,
        eta: np.ndarray,
        key: tuple[int, int, int],
        precision: float = 1.0,
        overwrite: bool = False,
    ) -> np.ndarray:
        """A draw (n, D) of the rows given `precision` times what entries say, Lam (n, P), eta (n, D).

        The same for the same key. Lam may be overwritten if `overwrite`.

        Raises
        ------
        FloatingPointError
            If the joint precision is not positive definite.
        """
        blocks = _blocks(self, Lam, eta, precision)
        V, y, _ = _eliminated(blocks, overwrite)
        out = np.empty_like(y)
        draw_back(V, y, blocks.between, key, out)
        return _unfolded(out, len(self.own)) if self.of.closed else out

    def marginals(self, Lam: np.ndarray, eta: np.ndarray, precision: float = 1.0) -> Marginals:
        """The moments of the rows given `precision` times what entries say, Lam (n, P), eta (n, D).

        Raises
        ------
        FloatingPointError
            If the joint precision is not positive definite.
        """
        blocks = _blocks(self, Lam, eta, precision)
        V, y, log_det = _eliminated(blocks)
        mean, cov, cross = np.empty_like(y), np.empty_like(V), np.empty_like(blocks.between)
        marginals_back(V, y, blocks.between, mean, cov, cross)
        found = Marginals(mean, cov, cross, log_det)
        return _of_circle(found, self) if self.of.closed else found


class PiecewiseDraw:
    """A draw as by `draw`, of rows on a line whose entries are told of some rows at a time, in order."""

    def __init__(self, prior: Links, precision: float):
        n, D = prior.own.shape
        self.prior, self.precision, self.told, self.log_det = prior, float(precision), 0, 0.0
        self.V, self.y, self.carry = np.empty((n, D * (D + 1) // 2)), np.empty((n, D)), nothing_before(D)

    def tell(self, Lam: np.ndarray, eta: np.ndarray) -> None:
        """What the entries of the next k rows say, (k, P) and (k, D)."""
        prior, V, y = self.prior, self.V, self.y
        parts = Lam, eta, self.precision, prior.own, prior.field, prior.between
        self.log_det = _checked(eliminate(self.told, *parts, V, y, self.carry))
        self.told += len(Lam)

    def rows(self, key: tuple[int, int, int]) -> np.ndarray:
        """The draw (n, D) once all is told."""
        out = np.empty_like(self.y)
        draw_back(self.V, self.y, self.prior.between, key, out)
        return out


def _eliminated(blocks: Blocks, overwrite: bool = False) -> tuple[np.ndarray, np.ndarray, float]:
    V, y = blocks.Lam if overwrite else np.empty_like(blocks.Lam), np.empty_like(blocks.eta)
    return V, y, _checked(eliminate(0, *blocks, V, y, nothing_before(y.shape[1])))


def _checked(log_det: float) -> float:
    """The log determinant, if it is one."""
    if not np.isfinite(log_det):
        raise FloatingPointError("the precision of the rows of a series is not positive definite; use a tighter prior.")
    return float(log_det)


def _blocks(prior: Links, Lam: np.ndarray, eta: np.ndarray, precision: float) -> Blocks:
    """The joint precision and natural mean of the rows."""
    n, D = prior.own.shape
    Lam, eta = Lam[:, : D * (D + 1) // 2], eta[:, :D]
    if not prior.of.closed:
        parts = (np.ascontiguousarray(part) for part in (Lam, eta, prior.own, prior.field, prior.between))
        Lam, eta, *rest = parts
        return Blocks(Lam, eta, float(precision), *rest)
    Lam, eta, at = precision * Lam, precision * eta + prior.field, diagonal(D)
    Lam[:, at] += prior.own
    between = prior.between
    if n % 2:
        used, extra = _extra(prior)
        more = np.zeros((1, Lam.shape[1]))
        more[0, at] = np.where(used, extra, 1.0)
        for end in (0, -1):
            Lam[end, at] += extra
        Lam, eta = np.concatenate([Lam, more]), np.concatenate([eta, np.zeros((1, D))])
        between = np.concatenate([between[:-1], extra[None], extra[None]])
    return _folded(Lam, eta, between)


def _extra(prior: Links) -> tuple[np.ndarray, np.ndarray]:
    """Which columns have a coupling of the last row with the first one, and it, (D,)."""
    closing = prior.between[-1]
    used = closing > NO_COUPLING
    return used, np.where(used, closing, 0.0)


def _folded(Lam: np.ndarray, eta: np.ndarray, between: np.ndarray) -> Blocks:
    """Blocks of two rows each of an even number of rows on a circle."""
    (n, D), m = eta.shape, len(eta) // 2
    whole, i = np.zeros((m, 2 * D, 2 * D)), np.arange(D)
    whole[:, :D, :D], whole[:, D:, D:] = unpack(Lam[:m], D), unpack(Lam[: m - 1 : -1], D)
    for block, edge in ((0, n - 1), (m - 1, m - 1)):
        whole[block, i, D + i] -= between[edge]
        whole[block, D + i, i] -= between[edge]
    coupled = np.concatenate([between[: m - 1], between[n - 2 : m - 1 : -1]], axis=1)
    nothing = np.zeros((m, 2 * D))
    natural = np.concatenate([eta[:m], eta[: m - 1 : -1]], axis=1)
    return Blocks(pack(whole), natural, 1.0, nothing, nothing, np.ascontiguousarray(coupled))


def _unfolded(blocks: np.ndarray, n: int) -> np.ndarray:
    """Rows (n, D) of blocks of two."""
    D = blocks.shape[1] // 2
    return np.concatenate([blocks[:, :D], blocks[::-1, D:]])[:n]


def _of_circle(found: Marginals, prior: Links) -> Marginals:
    """The moments of rows on a circle from those of their blocks."""
    n, D = prior.own.shape
    m, i = len(found.mean), np.arange(D)
    whole = unpack(found.cov, 2 * D)
    cov = np.concatenate([whole[:, :D, :D], whole[::-1, D:, D:]])[:n]
    ends = [whole[block, i, D + i][None] for block in (0, m - 1)]
    cross = np.concatenate([found.cross[:, :D], ends[1], found.cross[::-1, D:], ends[0]])
    log_det = found.log_det
    if n % 2:  # the mean of the extra row given others is the sum of its neighbours
        used, d = _extra(prior)
        cross = np.concatenate([cross[: n - 1], np.where(used, cross[-1] - whole[0, i, i], 0.0)[None]])
        log_det -= float(np.log(np.where(used, d, 1.0)).sum())
    return Marginals(_unfolded(found.mean, n), pack(cov), cross, log_det)
