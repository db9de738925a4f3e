"""Sums of products of rows of many draws, and means over the draws: the inner loops of predictions.

A row of the table is padded with zeros to whole vectors and starts on a cache line (see
`tensorcep.kernels.slots.lane_zeros`), so that no number is worked on alone and no load straddles two lines.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

from tensorcep.core.compile import block_kernel, emitted_by
from tensorcep.kernels.rank_update import COLUMNS, VECTOR, vector_at
from tensorcep.kernels.slots_rules import FLAGS, array_rule, emit_loop, emit_product

# Points whose sums are added up at a time, so that they stay in the processor's nearest cache.
TOGETHER = 512


@array_rule(types.float64)
def _sum_of_products(builder, table, a, b, c, n):
    def body(q: Any, totals: list[Any]) -> list[Any]:
        at = builder.mul(q, ir.Constant(q.type, COLUMNS))
        places = [vector_at(builder, table, builder.add(start, at)) for start in (a, b, c)]
        x, y, z = (builder.load(place, align=8) for place in places)
        return [builder.fadd(totals[0], emit_product(builder, emit_product(builder, x, y), z), flags=FLAGS)]

    (total,) = emit_loop(builder, n, [ir.Constant(VECTOR, [0.0] * COLUMNS)], body)
    kind = ir.FunctionType(ir.DoubleType(), [ir.DoubleType(), VECTOR])
    add_up = cgutils.get_or_insert_function(builder.module, kind, f"llvm.vector.reduce.fadd.v{COLUMNS}f64")
    return builder.call(add_up, [ir.Constant(ir.DoubleType(), 0.0), total], fastmath=FLAGS)


@emitted_by(_sum_of_products)
def sum_of_products(table, a, b, c, n):
    """Return the sum over q < n * COLUMNS of table[a + q] table[b + q] table[c + q], table (m,)."""
    total = 0.0
    for q in range(n * COLUMNS):
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
    flat, blocks = table.reshape(table.size), W // COLUMNS
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
            f[s, i] = sum_of_products(flat, a * W, b * W, c * W, blocks)


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
