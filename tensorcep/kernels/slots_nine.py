"""Until every caller has the short form: the operations on slots also take nine arguments, an array before each slot.

``f(out, o, x, i, y, j, n, c, k)`` is the short form with the pairs (out, o), (x, i), (y, j) and (c, k) that it uses.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from numba import types
from numba.extending import intrinsic

from tensorcep.core.jit import AS_PYTHON, CHECKED, emitted_by

_NINE = 9


def emitted_by_or_nine(rule: Callable[..., Any], uses: str) -> Callable[..., Any]:
    """As `emitted_by`; `uses` names the operands of the nine that the operation has, such as "oxyc"."""

    def decorate(python: Callable[..., Any]) -> Any:
        def both(*args: Any) -> Any:
            if len(args) != _NINE:
                return python(*args)
            pairs = [(args[a], args[a + 1]) for a in _places(uses)]
            pairs.insert(len(pairs) - uses.endswith("c"), args[6])
            return python(args[0], *pairs)

        if AS_PYTHON:
            return both
        if CHECKED:
            return emitted_by(rule)(python)

        def definition(typing_context: Any, *args: Any) -> Any:
            nine = len(args) == _NINE
            names = [f"a{i}" for i in range(_NINE)] if nine else list(inspect.signature(python).parameters)
            kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
            parameters = [inspect.Parameter(name, kind) for name in ("typing_context", *names)]
            definition.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
            return _nine_rule(rule, uses, args) if nine else rule(*args)

        definition.__name__, definition.__qualname__ = python.__name__, python.__qualname__
        definition.__doc__, definition.__module__ = python.__doc__, python.__module__
        return intrinsic(definition)

    return decorate


def _places(uses: str) -> list[int]:
    return [{"o": 0, "x": 2, "y": 4, "c": 7}[name] for name in uses]


def _nine_rule(rule: Callable[..., Any], uses: str, kinds: tuple[Any, ...]) -> Any:
    places = _places(uses)
    pairs: list[Any] = [types.Tuple((kinds[a], types.intp)) for a in places]
    at = len(pairs) - uses.endswith("c")
    pairs.insert(at, types.intp)
    short, code = rule(kinds[0], *pairs)
    given = [types.intp if i in (1, 3, 5, 6, 8) else kind for i, kind in enumerate(kinds)]

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kinds_of_pairs = pairs[:at] + pairs[at + 1 :]
        values = [
            context.make_tuple(builder, pair, (args[a], args[a + 1]))
            for pair, a in zip(kinds_of_pairs, places, strict=True)
        ]
        values.insert(at, args[6])
        return code(context, builder, short, [args[0], *values])

    return types.void(*given), codegen
