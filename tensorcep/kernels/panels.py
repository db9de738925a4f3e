"""Elimination of a few lines of a symmetric matrix, whose vectors stay in registers all the time.

By operations that load and store them, most of the time goes into waiting for what was just stored.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types

from tensorcep.core.jit import emitted_by
from tensorcep.kernels.outer import COLUMNS, data_of, everywhere, vector_at
from tensorcep.kernels.slots_rules import emit_add_product, emit_product

# Lines of the smaller operation: matrices that are no larger need not wait for pivots that are 1.
FEW = 2


def _rule(size: int) -> Callable[..., Any]:
    """The rule of an operation on `size` lines."""

    def rule(A: Any, o: Any, stride: Any, inverse: Any, p: Any, out: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            A, o, stride, inverse, p, out = data_of(context, builder, signature, args)
            starts = [builder.add(o, builder.mul(stride, ir.Constant(o.type, i))) for i in range(size)]
            lines = [builder.load(vector_at(builder, A, start), align=8) for start in starts]
            units = [ir.Constant(lines[0].type, [float(i == j) for j in range(COLUMNS)]) for i in range(size)]
            for k in range(size):
                pivot = builder.extract_element(lines[k], ir.Constant(ir.IntType(32), k))
                scale = builder.fdiv(ir.Constant(pivot.type, 1.0), pivot)
                builder.store(scale, builder.gep(inverse, [builder.add(p, ir.Constant(p.type, k))], inbounds=True))
                factors = builder.fneg(emit_product(builder, everywhere(builder, scale), lines[k]))
                for i in range(k + 1, size):
                    factor = everywhere(builder, builder.extract_element(factors, ir.Constant(ir.IntType(32), i)))
                    lines[i] = emit_add_product(builder, lines[i], factor, lines[k])
                    units[i] = emit_add_product(builder, units[i], factor, units[k])
            for i, unit in enumerate(units):
                place = vector_at(builder, out, ir.Constant(o.type, i * COLUMNS))
                builder.store(unit, place, align=8)
            return context.get_dummy_value()

        return types.void(A, types.intp, types.intp, inverse, types.intp, out), codegen

    return rule


def _eliminated(size: int, A: Any, o: int, stride: int, inverse: Any, p: int, out: Any) -> None:
    """The Python form of the operations."""
    flat = A.reshape(-1)
    lines = np.array([flat[o + i * stride : o + i * stride + COLUMNS] for i in range(size)])
    out[:size] = np.eye(size, COLUMNS)
    for k in range(size):
        inverse[p + k] = 1.0 / lines[k, k]
        for i in range(k + 1, size):
            factor = -lines[k, i] * inverse[p + k]
            lines[i] += factor * lines[k]
            out[i] += factor * out[k]


@emitted_by(_rule(COLUMNS), checkable=False)
def eliminate_lines(A, o, stride, inverse, p, out):
    """Find what makes COLUMNS lines of a symmetric A diagonal, `stride` apart from A[o] on.

    `out` (COLUMNS, COLUMNS) is the inverse of the unit triangular factor of these lines, and `inverse` has from p on
    the inverse of the diagonal of out A out'.
    """
    _eliminated(COLUMNS, A, o, stride, inverse, p, out)


@emitted_by(_rule(FEW), checkable=False)
def eliminate_few(A, o, stride, inverse, p, out):
    """As `eliminate_lines`, of FEW lines; other lines of `out` stay."""
    _eliminated(FEW, A, o, stride, inverse, p, out)
