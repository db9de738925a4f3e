"""Sums of outer products of many vectors: rank-n updates of a symmetric matrix, a tile of it at a time in registers.

The same sums in lanes (`tensorcep.kernels.lanes.add_outer`) hold LANES matrices at once, which from about ten columns
on are larger than the first-level cache. Here there is one matrix, and a tile of it stays in registers over all n
vectors, so that multiply-adds, not loads and stores, set the pace.
"""

from __future__ import annotations

import itertools
from typing import Any

from llvmlite import ir
from numba import types

from tensorcep.core.jit import block_kernel, emitted_by
from tensorcep.kernels.slots_rules import emit_add_product, emit_loop

# A tile has ROWS x COLUMNS numbers: eight registers of four, which leaves half of AVX2's for the operands.
ROWS, COLUMNS, LENGTH = 4, 8, 4
_VECTOR = ir.VectorType(ir.DoubleType(), LENGTH)


def padded(n: int) -> int:
    """The next multiple of COLUMNS: vectors and the matrix are stored with so many columns."""
    return -(-n // COLUMNS) * COLUMNS


def _tile_sums(n: Any, x: Any, i: Any, y: Any, j: Any, width: Any, out: Any, o: Any, stride: Any) -> Any:
    signature = types.void(types.intp, x, types.intp, y, types.intp, types.intp, out, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        n, _, i, _, j, width, _, o, stride = args
        first = {
            name: context.make_array(signature.args[a])(context, builder, value=args[a]).data
            for name, a in (("x", 1), ("y", 3), ("out", 6))
        }
        # one number of x in all places
        nothing, here = ir.Constant(_VECTOR, ir.Undefined), ir.Constant(ir.IntType(32), 0)
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), LENGTH), [0] * LENGTH)

        def number(name: str, start: Any, offset: int) -> Any:
            return builder.gep(first[name], [builder.add(start, ir.Constant(start.type, offset))], inbounds=True)

        def vector(name: str, start: Any, offset: int) -> Any:
            return builder.bitcast(number(name, start, offset), _VECTOR.as_pointer())

        def body(q: Any, totals: list[Any]) -> list[Any]:
            at = builder.mul(q, width)
            columns = [builder.load(vector("y", builder.add(j, at), c), align=8) for c in range(0, COLUMNS, LENGTH)]
            rows = [builder.load(number("x", builder.add(i, at), r), align=8) for r in range(ROWS)]
            rows = [builder.insert_element(nothing, x, here) for x in rows]
            rows = [builder.shuffle_vector(x, nothing, everywhere) for x in rows]
            pairs = itertools.product(rows, columns)
            return [emit_add_product(builder, total, *pair) for total, pair in zip(totals, pairs, strict=True)]

        lines = [builder.add(o, builder.mul(stride, ir.Constant(stride.type, r))) for r in range(ROWS)]
        tile = [vector("out", line, c) for line in lines for c in range(0, COLUMNS, LENGTH)]
        totals = emit_loop(builder, n, [builder.load(pointer, align=8) for pointer in tile], body)
        for pointer, total in zip(tile, totals, strict=True):
            builder.store(total, pointer, align=8)
        return context.get_dummy_value()

    return signature, codegen


@emitted_by(_tile_sums)
def _add_tile(n, x, i, y, j, width, out, o, stride):
    """out[o + r * stride + c] += sum over q < n of x[i + q * width + r] y[j + q * width + c], r < ROWS, c < COLUMNS."""
    for r in range(ROWS):
        for c in range(COLUMNS):
            for q in range(n):
                out[o // stride + r, o % stride + c] += x[q, i + r] * y[q, j + c]


@block_kernel
def add_outer_products(n, R, x, y, out):
    """Lower triangle of out (S, S) += sum of the outer products x[q] y[q]' of the first n rows of x and y (m, W).

    The matrix has R rows and columns. S is `padded` R and W at least that. Numbers of `out` beyond the triangle change.
    """
    width, stride = y.shape[1], out.shape[1]
    for a in range(0, R, ROWS):
        for b in range(0, a + ROWS, COLUMNS):
            _add_tile(n, x, a, y, b, width, out, a * stride + b, stride)
