"""Sums of outer products of many vectors: rank-n updates of a symmetric matrix, a tile of it at a time in registers.

The same sums in lanes (`tensorcep.kernels.lanes.add_outer`) hold LANES matrices at once, which from about ten columns
on are larger than the first-level cache. Here there is one matrix, and a tile of it stays in registers over all n
vectors, so that multiply-adds, not loads and stores, set the pace.

To the operations arrays are flat: a vector is an array and the place of its first number.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types

from tensorcep.core.jit import block_kernel, emitted_by
from tensorcep.kernels.slots_rules import emit_add_product, emit_loop, emit_product

# A tile has ROWS x COLUMNS numbers: eight registers, which leaves half of AVX2's for the operands. Every number is
# summed over the vectors in their order, whatever the tile.
COLUMNS = 8
ROWS = 8 if binding.get_host_cpu_features().get("avx512f") else 4
_VECTOR = ir.VectorType(ir.DoubleType(), COLUMNS)


def padded(n: int) -> int:
    """The next multiple of COLUMNS: vectors and the matrix are stored with so many columns."""
    return -(-n // COLUMNS) * COLUMNS


def _number(builder: Any, array: Any, start: Any, offset: int = 0) -> Any:
    """Pointer to a number of a flat array."""
    return builder.gep(array, [builder.add(start, ir.Constant(start.type, offset))], inbounds=True)


def _vector(builder: Any, array: Any, start: Any, offset: int = 0) -> Any:
    """Pointer to COLUMNS numbers."""
    return builder.bitcast(_number(builder, array, start, offset), _VECTOR.as_pointer())


def _everywhere(builder: Any, pointer: Any) -> Any:
    """One number in all places of a vector."""
    nothing, mask = (
        ir.Constant(_VECTOR, ir.Undefined),
        ir.Constant(ir.VectorType(ir.IntType(32), COLUMNS), [0] * COLUMNS),
    )
    x = builder.insert_element(nothing, builder.load(pointer, align=8), ir.Constant(ir.IntType(32), 0))
    return builder.shuffle_vector(x, nothing, mask)


def _data(context: Any, builder: Any, signature: Any, args: Any) -> list[Any]:
    """The arguments, arrays as pointers to their first numbers."""
    return [
        context.make_array(kind)(context, builder, value=value).data if isinstance(kind, types.Array) else value
        for kind, value in zip(signature.args, args, strict=True)
    ]


def _sums(tile: Any, builder: Any, n: Any, x: Any, y: Any, width: Any, factors: Any = None) -> None:
    """Emit the sums of a tile, its last line's factors in an array of their own if there is one."""

    def body(q: Any, totals: list[Any]) -> list[Any]:
        at = builder.mul(q, width)
        column = builder.load(_vector(builder, y[0], builder.add(y[1], at)), align=8)
        rows = [_number(builder, x[0], builder.add(x[1], at), r) for r in range(ROWS)]
        rows += [] if factors is None else [_number(builder, factors, q)]
        pairs = zip(totals, rows, strict=True)
        return [emit_add_product(builder, total, _everywhere(builder, row), column) for total, row in pairs]

    totals = emit_loop(builder, n, [builder.load(pointer, align=8) for pointer in tile], body)
    for pointer, total in zip(tile, totals, strict=True):
        builder.store(total, pointer, align=8)


def _lines(builder: Any, out: Any, o: Any, stride: Any) -> list[Any]:
    return [_vector(builder, out, builder.add(o, builder.mul(stride, ir.Constant(o.type, r)))) for r in range(ROWS)]


def _tile_sums(n: Any, x: Any, i: Any, j: Any, y: Any, width: Any, out: Any, o: Any, stride: Any) -> Any:
    signature = types.void(types.intp, x, types.intp, types.intp, y, types.intp, out, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        n, x, i, j, y, width, out, o, stride = _data(context, builder, signature, args)
        _sums(_lines(builder, out, o, stride), builder, n, (x, i), (y, j), width)
        return context.get_dummy_value()

    return signature, codegen


def _edge_sums(
    n: Any, x: Any, i: Any, y: Any, factors: Any, width: Any, out: Any, o: Any, line: Any, stride: Any
) -> Any:
    signature = types.void(types.intp, x, types.intp, y, factors, types.intp, out, types.intp, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        n, x, i, y, factors, width, out, o, line, stride = _data(context, builder, signature, args)
        tile = [*_lines(builder, out, o, stride), _vector(builder, out, line)]
        _sums(tile, builder, n, (x, i), (y, i), width, factors)
        return context.get_dummy_value()

    return signature, codegen


@emitted_by(_tile_sums)
def _add_tile(n, x, i, j, y, width, out, o, stride):
    """out[o + r * stride + c] += sum over q < n of x[i + q * width + r] y[j + q * width + c], r < ROWS, c < COLUMNS."""
    for r in range(ROWS):
        for c in range(COLUMNS):
            for q in range(n):
                out[o // stride + r, o % stride + c] += x[q, i + r] * y[q, j + c]


@emitted_by(_edge_sums)
def _add_edge(n, x, i, y, factors, width, out, o, line, stride):
    """As `_add_tile` with i = j, and out[line + c] += sum over q < n of factors[q] y[i + q * width + c]."""
    _add_tile(n, x, i, i, y, width, out, o, stride)
    for c in range(COLUMNS):
        for q in range(n):
            out[line // stride, line % stride + c] += factors[q] * y[q, i + c]


@block_kernel
def add_outer_products(n, R, x, y, factors, out):
    """Add sums over the first n rows of x and y (m, W), and numbers of factors (m,), to out (S + 1, S).

    The lower triangle of out[:R, :R] gains the outer products x[q] y[q]', the last line factors[q] y[q]. S is `padded`
    R and W at least that. Other numbers of `out` change, too.
    """
    width, stride = y.shape[1], out.shape[1]
    for b in range(0, R, COLUMNS):
        _add_edge(n, x, b, y, factors, width, out, b * stride + b, stride * stride + b, stride)
        for a in range(b + ROWS, R, ROWS):
            _add_tile(n, x, a, b, y, width, out, a * stride + b, stride)


def _product(out: Any, o: Any, x: Any, i: Any, y: Any, j: Any, n: Any) -> Any:
    signature = types.void(out, types.intp, x, types.intp, y, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out, o, x, i, y, j, n = _data(context, builder, signature, args)

        def body(q: Any, totals: list[Any]) -> list[Any]:
            at = builder.mul(q, ir.Constant(q.type, COLUMNS))
            pointers = (_vector(builder, a, builder.add(first, at)) for a, first in ((x, i), (y, j)))
            product = emit_product(builder, *(builder.load(pointer, align=8) for pointer in pointers))
            builder.store(product, _vector(builder, out, builder.add(o, at)), align=8)
            return totals

        emit_loop(builder, builder.sdiv(n, ir.Constant(n.type, COLUMNS)), [], body)
        return context.get_dummy_value()

    return signature, codegen


@emitted_by(_product)
def multiply_rows(out, o, x, i, y, j, n):
    """out[o + p] = x[i + p] y[j + p] for p < n, a multiple of COLUMNS; arrays (m, W) of which a row holds it all."""
    for p in range(n):
        product = x[i // x.shape[1], i % x.shape[1] + p] * y[j // y.shape[1], j % y.shape[1] + p]
        out[o // out.shape[1], o % out.shape[1] + p] = product


def _scalar(x: Any, i: Any, y: Any, j: Any, n: Any) -> Any:
    signature = types.float64(x, types.intp, y, types.intp, types.intp)

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, i, y, j, n = _data(context, builder, signature, args)

        def body(q: Any, totals: list[Any]) -> list[Any]:
            at = builder.mul(q, ir.Constant(q.type, COLUMNS))
            pointers = (_vector(builder, a, builder.add(first, at)) for a, first in ((x, i), (y, j)))
            return [emit_add_product(builder, *totals, *(builder.load(pointer, align=8) for pointer in pointers))]

        nothing = ir.Constant(_VECTOR, [0.0] * COLUMNS)
        (total,) = emit_loop(builder, builder.sdiv(n, ir.Constant(n.type, COLUMNS)), [nothing], body)
        numbers = [builder.extract_element(total, ir.Constant(ir.IntType(32), c)) for c in range(COLUMNS)]
        while len(numbers) > 1:
            numbers = [builder.fadd(a, b) for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
        return numbers[0]

    return signature, codegen


@emitted_by(_scalar)
def dot_row(x, i, y, j, n):
    """The sum of x[i + p] y[j + p] over p < n, as `multiply_rows` for x (m, W); y is flat."""
    total = 0.0
    for p in range(n):
        total += x[i // x.shape[1], i % x.shape[1] + p] * y[j + p]
    return total
