"""LLVM IR of the operations on slots, and makers of their rules: `tensorcep.kernels.slots` says what each does.

The operations run over consecutive slots: a dot product, whose sum stays in vector registers, and elementwise ones.
They are IR because numba's loop vectoriser gives up on them: it cannot prove that the output does not overlap the
inputs. Arithmetic is float64; float32 slots are converted as they are loaded and stored.

A rule gets the types of a call's arguments and gives its signature and what emits its code, as numba's intrinsics do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils

# 16 float64 are four AVX2 or two AVX-512 registers: enough independent sums to hide the latency of the multiply-add,
# while the work arrays of one block still fit the first-level cache at the usual ranks.
LANES = 16

# A pivot below this fraction of its diagonal entry means "not positive definite" (rounding in a rank-50 factorisation
# of a well-conditioned matrix stays below 1e-14).
PIVOT_FLOOR = 1e-13

_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_TILE = ir.VectorType(ir.DoubleType(), 4)
FLAGS = ("reassoc", "contract", "arcp", "nsz")

Emit = Callable[..., Any]


def _constant(x: float) -> Any:
    return ir.Constant(_VECTOR, [x] * LANES)


def _slot(context: Any, builder: Any, array_type: Any, array: Any, slot: Any) -> Any:
    """Pointer to one slot of a lane array of float64 or float32."""
    data = context.make_array(array_type)(context, builder, value=array).data
    place = builder.gep(data, [builder.mul(slot, ir.Constant(slot.type, LANES))], inbounds=True)
    return builder.bitcast(place, ir.VectorType(data.type.pointee, LANES).as_pointer())


def emit_load(builder: Any, pointer: Any) -> Any:
    """Load a slot as float64."""
    value = builder.load(pointer, align=4)
    return value if value.type == _VECTOR else builder.fpext(value, _VECTOR)


def _store(builder: Any, value: Any, pointer: Any) -> None:
    """Store a slot in the array's own precision."""
    stored = pointer.type.pointee
    builder.store(value if stored == _VECTOR else builder.fptrunc(value, stored), pointer, align=4)


def emit_place(builder: Any, array: Any, q: Any) -> Any:
    """Pointer to item q of a flat array."""
    return builder.gep(array, [q], inbounds=True)


def emit_add_product(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """Emit x + y z."""
    return builder.fadd(x, builder.fmul(y, z, flags=FLAGS), flags=FLAGS)


def emit_product(builder: Any, x: Any, y: Any) -> Any:
    """Emit x y."""
    return builder.fmul(x, y, flags=FLAGS)


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


def _operand(context: Any, builder: Any, w: tuple[Any, Any], operand: tuple[Any, Any]) -> Any:
    """Pointer to an operand, (type, value): a slot of w, or a pair of an array and its slot."""
    kind, value = operand
    if not isinstance(kind, types.BaseTuple):
        return _slot(context, builder, *w, value)
    array, slot = (builder.extract_value(value, part) for part in (0, 1))
    return _slot(context, builder, kind[0], array, context.cast(builder, slot, kind[1], types.intp))


def rule_of(emit: Emit, at: int) -> Callable[..., Any]:
    """A rule for ``f(w, *operands)`` whose operand number `at` is the length; ``emit(builder, n, *pointers)``."""

    def rule(w: Any, *operands: Any) -> Any:
        kinds = [kind if isinstance(kind, types.BaseTuple) else types.intp for kind in operands]

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            given = list(zip(kinds, args[1:], strict=True))
            n = given.pop(at)[1]
            emit(builder, n, *(_operand(context, builder, (w, args[0]), one) for one in given))
            return context.get_dummy_value()

        return types.void(w, *kinds), codegen

    return rule


def _dots(builder: Any, n: Any, x: Any, *ys: Any) -> list[Any]:
    """Emit sum_q x[q] y[q] over n slots for every y, x loaded once; returns the vector values."""

    def body(q: Any, totals: list[Any]) -> list[Any]:
        x_q = emit_load(builder, emit_place(builder, x, q))
        loaded = [emit_load(builder, emit_place(builder, y, q)) for y in ys]
        return [emit_add_product(builder, total, x_q, y_q) for total, y_q in zip(totals, loaded, strict=True)]

    return emit_loop(builder, n, [_constant(0.0) for _ in ys], body)


def with_dots(result: Emit, sums: int = 1) -> Callable[..., Any]:
    """A rule for out = result(dot of x and y, out, d), with or without d, or for two of them that share x."""
    # Loading x once for two sums is worth a quarter of the time: the loads, not the multiply-adds, are the limit.

    def emit(builder: Any, n: Any, *places: Any) -> None:
        outs, (x, *ys), d = places[:sums], places[sums : 2 * sums + 1], places[2 * sums + 1 :]
        for out, dot in zip(outs, _dots(builder, n, x, *ys), strict=True):
            _store(builder, result(builder, dot, out, *d), out)

    return rule_of(emit, 2 * sums + 1)


def elementwise(combine: Emit, *, two: bool = True) -> Callable[..., Any]:
    """A rule for out[q] = combine(x[q], y[q], factor) over n slots, with or without y and a factor."""

    def emit(builder: Any, n: Any, out: Any, x: Any, *others: Any) -> None:
        ys = others[:1] if two else ()
        factors = [emit_load(builder, pointer) for pointer in others[len(ys) :]]

        def body(q: Any, totals: list[Any]) -> list[Any]:
            values = [emit_load(builder, emit_place(builder, pointer, q)) for pointer in (x, *ys)]
            _store(builder, combine(builder, *values, *factors), emit_place(builder, out, q))
            return totals

        emit_loop(builder, n, [], body)

    return rule_of(emit, 3 if two else 2)


def solved(builder: Any, dot: Any, out: Any, d: Any) -> Any:
    """Emit (out - dot) d."""
    return builder.fmul(builder.fsub(emit_load(builder, out), dot, flags=FLAGS), emit_load(builder, d), flags=FLAGS)


def negated(builder: Any, dot: Any, out: Any, d: Any) -> Any:
    """Emit - dot d."""
    return builder.fneg(builder.fmul(dot, emit_load(builder, d), flags=FLAGS))


def damped(builder: Any, x: Any, y: Any, c: Any) -> Any:
    """Emit x + c (y - x) where c > 0, else x."""
    moved = emit_add_product(builder, x, c, builder.fsub(y, x, flags=FLAGS))
    return builder.select(builder.fcmp_ordered(">", c, _constant(0.0)), moved, x)


def emit_pivot(builder: Any, n: Any, out: Any, x: Any, inv_root: Any, ok: Any) -> None:
    """Emit the step of `tensorcep.kernels.slots.pivot_step`."""
    diagonal = emit_load(builder, out)
    pivot = builder.fsub(diagonal, _dots(builder, n, x, x)[0], flags=FLAGS)
    good = builder.fcmp_ordered(">", pivot, builder.fmul(diagonal, _constant(PIVOT_FLOOR)))
    sqrt_type = ir.FunctionType(_VECTOR, [_VECTOR])
    sqrt = cgutils.get_or_insert_function(builder.module, sqrt_type, f"llvm.sqrt.v{LANES}f64")
    root = builder.call(sqrt, [builder.select(good, pivot, _constant(1.0))])
    _store(builder, builder.fdiv(_constant(1.0), root), inv_root)
    _store(builder, builder.select(good, emit_load(builder, ok), _constant(0.0)), ok)


def _shuffle(builder: Any, a: Any, b: Any, mask: tuple[int, ...]) -> Any:
    return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(ir.IntType(32), 4), list(mask)))


def _transpose(builder: Any, rows: list[Any]) -> list[Any]:
    """Transpose a 4 x 4 tile held as four vectors."""
    a, b, c, d = rows
    low = [_shuffle(builder, x, y, (0, 4, 2, 6)) for x, y in ((a, b), (c, d))]
    high = [_shuffle(builder, x, y, (1, 5, 3, 7)) for x, y in ((a, b), (c, d))]
    halves = [((0, 1, 4, 5), low), ((0, 1, 4, 5), high), ((2, 3, 6, 7), low), ((2, 3, 6, 7), high)]
    return [_shuffle(builder, pair[0], pair[1], mask) for mask, pair in halves]


def _tiles(builder: Any, data: Any, offsets: Sequence[Any]) -> list[Any]:
    """Pointers to four numbers each, at flat offsets."""
    tile = ir.PointerType(ir.VectorType(data.type.pointee, 4))
    return [builder.bitcast(emit_place(builder, data, offset), tile) for offset in offsets]


def _tile_slots(builder: Any, slot: Any, lane: Any) -> list[Any]:
    """Flat offsets of a lane in four slots."""
    first = builder.add(builder.mul(slot, ir.Constant(slot.type, LANES)), lane)
    return [builder.add(first, ir.Constant(first.type, LANES * j)) for j in range(4)]


def array_rule(result: Any = types.void) -> Any:
    """Make a rule (see `emitted_by`) of ``emit(builder, *arguments)``; arrays are pointers to their first numbers."""

    def make(emit: Any) -> Any:
        def rule(*kinds: Any) -> Any:
            taken = [types.float64 if isinstance(kind, types.Float) else types.intp for kind in kinds]
            taken = [kind if isinstance(kind, types.Array) else one for kind, one in zip(kinds, taken, strict=True)]

            def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
                data = list(args)
                for place, kind in enumerate(signature.args):
                    if isinstance(kind, types.Array):
                        data[place] = context.make_array(kind)(context, builder, value=args[place]).data
                found = emit(builder, *data)
                return context.get_dummy_value() if result is types.void else found

            return result(*taken), codegen

        return rule

    return make


@array_rule()
def tile_in(builder, w, o, lane, source, *offsets):
    """The rule of `tensorcep.kernels.slots.tile_in`."""
    columns = _transpose(builder, [builder.load(row, align=8) for row in _tiles(builder, source, offsets)])
    for pointer, column in zip(_tiles(builder, w, _tile_slots(builder, o, lane)), columns, strict=True):
        builder.store(column, pointer, align=8)


@array_rule()
def tile_add(builder, total, f0, f1, f2, f3, values, o, lane):
    """The rule of `tensorcep.kernels.slots.tile_add`."""
    loaded = [builder.load(pointer, align=4) for pointer in _tiles(builder, values, _tile_slots(builder, o, lane))]
    loaded = [x if x.type == _TILE else builder.fpext(x, _TILE) for x in loaded]
    rows = _tiles(builder, total, (f0, f1, f2, f3))
    for pointer, numbers in zip(rows, _transpose(builder, loaded), strict=True):
        builder.store(builder.fadd(builder.load(pointer, align=8), numbers), pointer, align=8)
