"""Sums of outer products of many vectors: rank-n updates of a symmetric matrix, a tile of it at a time in registers.

The same sums in lanes (`tensorcep.kernels.lanes.add_outer`) hold LANES matrices at once, which from about ten columns
on are larger than the first-level cache. Here there is one matrix, and a tile of it stays in registers over all n
vectors, so that multiply-adds, not loads and stores, set the pace.

To the operations arrays are flat: a vector is an array and the place of its first number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils

from tensorcep.core.compile import block_kernel, emitted_by
from tensorcep.core.kernel_cache import target
from tensorcep.kernels.slots_rules import FLAGS, array_rule, emit_add_product, emit_loop, emit_place, emit_product

# A tile has ROWS x COLUMNS numbers: eight registers, which leaves half of AVX2's for the operands. Every number is
# summed over the vectors in their order, whatever the tile.
COLUMNS = 8
ROWS = 8 if target().wide else 4
VECTOR = ir.VectorType(ir.DoubleType(), COLUMNS)


def padded(n: int) -> int:
    """The next multiple of COLUMNS: vectors and the matrix are stored with so many columns."""
    return -(-n // COLUMNS) * COLUMNS


def vector_at(builder: Any, array: Any, start: Any) -> Any:
    """Pointer to COLUMNS numbers."""
    return builder.bitcast(emit_place(builder, array, start), VECTOR.as_pointer())


def everywhere(builder: Any, number: Any) -> Any:
    """One number in all places of a vector."""
    nothing, whole = ir.Constant(VECTOR, ir.Undefined), ir.IntType(32)
    mask = ir.Constant(ir.VectorType(whole, COLUMNS), [0] * COLUMNS)
    x = builder.insert_element(nothing, number, ir.Constant(whole, 0))
    return builder.shuffle_vector(x, nothing, mask)


def _each_vector(builder: Any, n: Any, rows: Any, body: Any, *start: Any) -> list[Any]:
    """Emit ``totals = body(totals, *pointers)`` for vectors of n numbers of `rows`, arrays and their first numbers."""

    def step(q: Any, totals: list[Any]) -> list[Any]:
        at = builder.mul(q, ir.Constant(q.type, COLUMNS))
        return body(totals, *(vector_at(builder, array, builder.add(first, at)) for array, first in rows))

    return emit_loop(builder, builder.sdiv(n, ir.Constant(n.type, COLUMNS)), list(start), step)


def _sums(tile: Any, builder: Any, n: Any, x: Any, y: Any, factors: Any = None) -> None:
    """Emit the sums of a tile, its last line's factors in an array of their own if there is one."""
    # `x` is (pointer, start, step, line): number r of vector q is at start + q * step + r * line; `y` without a line.

    def body(q: Any, totals: list[Any]) -> list[Any]:
        column = builder.load(vector_at(builder, y[0], builder.add(y[1], builder.mul(q, y[2]))), align=8)
        first = builder.add(x[1], builder.mul(q, x[2]))
        lines = [builder.mul(x[3], ir.Constant(first.type, r)) for r in range(ROWS)]
        rows = [emit_place(builder, x[0], builder.add(first, line)) for line in lines]
        rows += [] if factors is None else [emit_place(builder, factors, q)]
        factor = (everywhere(builder, builder.load(row, align=8)) for row in rows)
        return [emit_add_product(builder, total, one, column) for total, one in zip(totals, factor, strict=True)]

    totals = emit_loop(builder, n, [builder.load(pointer, align=8) for pointer in tile], body)
    for pointer, total in zip(tile, totals, strict=True):
        builder.store(total, pointer, align=8)


def _lines(builder: Any, out: Any, o: Any, stride: Any) -> list[Any]:
    return [vector_at(builder, out, builder.add(o, builder.mul(stride, ir.Constant(o.type, r)))) for r in range(ROWS)]


@array_rule()
def _tile_sums(builder, n, x, i, x_step, line, y, j, y_step, out, o, stride):
    _sums(_lines(builder, out, o, stride), builder, n, (x, i, x_step, line), (y, j, y_step))


@array_rule()
def _edge_sums(builder, n, x, i, y, factors, width, out, o, line, stride):
    tile = [*_lines(builder, out, o, stride), vector_at(builder, out, line)]
    _sums(tile, builder, n, (x, i, width, ir.Constant(i.type, 1)), (y, i, width), factors)


@emitted_by(_tile_sums)
def add_tile(n, x, i, x_step, line, y, j, y_step, out, o, stride):
    """Add to a tile sums over q < n of x[i + q * x_step + r * line] y[j + q * y_step + c], r < ROWS, c < COLUMNS."""
    # It begins at out[o], and its lines are `stride` apart. Arrays have two dimensions, and are flat here.
    for r in range(ROWS):
        for c in range(COLUMNS):
            for q in range(n):
                a, b, to = i + q * x_step + r * line, j + q * y_step + c, o + r * stride + c
                product = x[a // x.shape[1], a % x.shape[1]] * y[b // y.shape[1], b % y.shape[1]]
                out[to // out.shape[1], to % out.shape[1]] += product


@emitted_by(_edge_sums)
def _add_edge(n, x, i, y, factors, width, out, o, line, stride):
    """As `add_tile` of lines of `width` from i on, and out[line + c] += sum over q < n of factors[q] y[q, i + c]."""
    add_tile(n, x, i, width, 1, y, i, width, out, o, stride)
    for c in range(COLUMNS):
        for q in range(n):
            out[line // stride, line % stride + c] += factors[q] * y[q, i + c]


@block_kernel
def add_outer_products(n, R, x, y, factors, out):
    """Add sums over the first n rows of x and y (m, W), and numbers of factors (m,), to out (S + 1, S)."""
    # The lower triangle of out[:R, :R] gains the outer products x[q] y[q]', the last line factors[q] y[q]. S is
    # `padded` R and W at least that. Other numbers of `out` change, too.
    width, stride = y.shape[1], out.shape[1]
    for b in range(0, R, COLUMNS):
        _add_edge(n, x, b, y, factors, width, out, b * stride + b, stride * stride + b, stride)
        for a in range(b + ROWS, R, ROWS):
            add_tile(n, x, a, width, 1, y, b, width, out, a * stride + b, stride)


@array_rule()
def _product(builder, out, o, x, i, y, j, n):
    def body(totals, to, *factors):
        builder.store(emit_product(builder, *(builder.load(one, align=8) for one in factors)), to, align=8)
        return totals

    _each_vector(builder, n, [(out, o), (x, i), (y, j)], body)


@emitted_by(_product)
def multiply_rows(out, o, x, i, y, j, n):
    """out[o + p] = x[i + p] y[j + p] for p < n, a multiple of COLUMNS; arrays (m, W) of which a row holds it all."""
    for p in range(n):
        product = x[i // x.shape[1], i % x.shape[1] + p] * y[j // y.shape[1], j % y.shape[1] + p]
        out[o // out.shape[1], o % out.shape[1] + p] = product


@array_rule()
def _prefetch(builder, x, i):
    byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")
    place = builder.bitcast(emit_place(builder, x, i), byte)
    builder.call(function, [place, *(ir.Constant(number, n) for n in (0, 2, 1))])  # to read, second level, data


@emitted_by(_prefetch)
def read_ahead(x, i):
    """Have the cache line of number i of x fetched; it may be beyond the array."""


def _scaled(combine: Any) -> Any:
    """A rule for out[o + p] = combine(out[o + p], factor, x[i + p])."""

    @array_rule()
    def emit(builder, out, o, x, i, factor, n):
        factors = everywhere(builder, factor)

        def body(totals, to, of):
            builder.store(combine(builder, to, factors, builder.load(of, align=8)), to, align=8)
            return totals

        _each_vector(builder, n, [(out, o), (x, i)], body)

    return emit


@emitted_by(_scaled(lambda builder, to, f, x: emit_add_product(builder, builder.load(to, align=8), f, x)))
def add_row(out, o, x, i, factor, n):
    """out[o + p] += factor * x[i + p] for p < n, as `multiply_rows`."""
    for p in range(n):
        product = factor * x[i // x.shape[1], i % x.shape[1] + p]
        out[o // out.shape[1], o % out.shape[1] + p] += product


@emitted_by(_scaled(lambda builder, to, f, x: emit_product(builder, f, x)))
def scale_row(out, o, x, i, factor, n):
    """out[o + p] = factor * x[i + p] for p < n, as `multiply_rows`."""
    for p in range(n):
        out[o // out.shape[1], o % out.shape[1] + p] = factor * x[i // x.shape[1], i % x.shape[1] + p]


@array_rule(types.float64)
def _scalar(builder, x, i, y, j, n):
    def body(totals, *factors):
        return [emit_add_product(builder, *totals, *(builder.load(one, align=8) for one in factors))]

    (total,) = _each_vector(builder, n, [(x, i), (y, j)], body, ir.Constant(VECTOR, [0.0] * COLUMNS))
    numbers = [builder.extract_element(total, ir.Constant(ir.IntType(32), c)) for c in range(COLUMNS)]
    while len(numbers) > 1:
        numbers = [builder.fadd(a, b) for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
    return numbers[0]


@emitted_by(_scalar)
def dot_row(x, i, y, j, n):
    """The sum of x[i + p] y[j + p] over p < n, as `multiply_rows` for x (m, W); y is flat."""
    total = 0.0
    for p in range(n):
        total += x[i // x.shape[1], i % x.shape[1] + p] * y[j + p]
    return total


# Products of a tall matrix with a narrow one, a tile of the result at a time.
#
# Libraries pack operands so that large products run at full speed; here that takes as long as the product itself.

# Lines of both matrices whose products are summed at a time: they fit the second-level cache.
CHUNK = 64
# Numbers of a line of the cache.
LINE = 8


@block_kernel
def _add_times(x, y, out):
    """out += x y for x (n, F), y (F, S) and out (n, S); S is `padded`."""
    (F, S), n = y.shape, len(x)
    whole = n // ROWS * ROWS
    for i in range(0, whole, ROWS):
        for p in range(0, ROWS * F, LINE):
            read_ahead(x, (i + ROWS) * F + p)
        for c in range(0, S, COLUMNS):
            add_tile(F, x, i * F, 1, F, y, c, S, out, i * S + c, S)
    for i in range(whole, n):
        for f in range(F):
            add_row(out, i * S, y, f * S, x[i, f], S)


@block_kernel
def _add_transposed(x, y, out):
    """out += x' y for x (n, F), y (n, S) and out (F, S); S is `padded`."""
    n, F, S = len(x), x.shape[1], y.shape[1]
    whole = F // ROWS * ROWS
    for i in range(0, n, CHUNK):
        size = min(CHUNK, n - i)
        for p in range(0, size * F, LINE):
            read_ahead(x, (i + size) * F + p)
        for f in range(0, whole, ROWS):
            for c in range(0, S, COLUMNS):
                add_tile(size, x, i * F + f, F, 1, y, i * S + c, S, out, f * S + c, S)
        for f in range(whole, F):
            for q in range(i, i + size):
                add_row(out, f * S, y, q * S, x[q, f], S)


def _narrow_product(add: Any, n: int, x: np.ndarray, narrow: np.ndarray) -> np.ndarray:
    """What `add` gives of x and of (F, D) with zeros up to whole vectors of columns, without these: (n, D)."""
    D = narrow.shape[1]
    y = np.ascontiguousarray(np.pad(narrow, [(0, 0), (0, padded(D) - D)]), dtype=np.float64)
    out = np.zeros((n, y.shape[1]))
    add(x, y, out)
    return out[:, :D]


def times_narrow(x: np.ndarray, narrow: np.ndarray) -> np.ndarray:
    """The product of a C-contiguous x (n, F) with (F, D): (n, D)."""
    return _narrow_product(_add_times, len(x), x, narrow)


def transposed_times_narrow(x: np.ndarray, narrow: np.ndarray) -> np.ndarray:
    """The product of the transpose of a C-contiguous x (n, F) with (n, D): (F, D)."""
    return _narrow_product(_add_transposed, x.shape[1], x, narrow)


# Sums of products of rows of many draws, and means over the draws: the inner loops of predictions.
#
# A row of the table is padded with zeros to whole vectors and starts on a cache line (see
# `tensorcep.kernels.slots.lane_zeros`), so that no number is worked on alone and no load straddles two lines.

# Points whose sums are added up at a time, so that they stay in the processor's nearest cache.
TOGETHER = 512


@array_rule(types.float64)
def _sum_of_products(builder, table, a, b, c, n):
    def body(totals, *places):
        x, y, z = (builder.load(place, align=8) for place in places)
        return [builder.fadd(totals[0], emit_product(builder, emit_product(builder, x, y), z), flags=FLAGS)]

    nothing = ir.Constant(VECTOR, [0.0] * COLUMNS)
    (total,) = _each_vector(builder, n, [(table, start) for start in (a, b, c)], body, nothing)
    kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType(), VECTOR])
    add_up = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{COLUMNS}f64")
    return builder.call(add_up, [ir.Constant(ir.DoubleType(), 0.0), total], fastmath=FLAGS)


@emitted_by(_sum_of_products)
def sum_of_products(table, a, b, c, n):
    """Return the sum over q < n, a multiple of COLUMNS, of table[a + q] table[b + q] table[c + q], table (m,)."""
    total = 0.0
    for q in range(n):
        total += table[a + q] * table[b + q] * table[c + q]
    return total


@block_kernel
def sums_at_cells(draws, used, rows, table, f):
    """f[s, n] = sum over columns of the product of K rows of draw s, draws (S, n_rows, R), at the cells rows (n, K)."""
    # The rows `used` (u,) of a draw are copied to `table` (u + 2, W), which stays in the cache for all cells; `rows`
    # are places in `used`. Below them lie a row of ones and one of work space; what pads the columns is 0.
    S, R = draws.shape[0], draws.shape[2]
    n, K = rows.shape
    ones, work, W = len(used), len(used) + 1, table.shape[1]
    flat = table.reshape(table.size)
    for s in range(S):
        for i in range(len(used)):
            row = draws[s, used[i]]
            for r in range(R):
                table[i, r] = row[r]
        for i in range(n):
            a = rows[i, 0]
            if K > 3:
                for r in range(W):
                    table[work, r] = table[a, r] * table[rows[i, 1], r]
                for k in range(2, K - 2):
                    for r in range(W):
                        table[work, r] *= table[rows[i, k], r]
                a = work
            b = rows[i, K - 2] if K > 2 else ones
            c = rows[i, K - 1] if K > 1 else ones
            f[s, i] = sum_of_products(flat, a * W, b * W, c * W, W)


@block_kernel
def moments_over(values, mean, variance):
    """Write mean and variance (n,) over the lines of values (S, n)."""
    S, n = values.shape
    for first in range(0, n, TOGETHER):
        last = min(first + TOGETHER, n)
        for i in range(first, last):
            mean[i] = 0.0
            variance[i] = 0.0
        for s in range(S):
            for i in range(first, last):
                mean[i] += values[s, i]
        for i in range(first, last):
            mean[i] /= S
        for s in range(S):
            for i in range(first, last):
                variance[i] += (values[s, i] - mean[i]) ** 2
        for i in range(first, last):
            variance[i] /= S
