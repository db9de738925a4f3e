"""numba's front end without work that it does again and again: half of what a first fit waits for.

None of this changes what is compiled. Flags are compared by every look for an overloaded function, option by option;
what an operator gives for its types is asked anew wherever it stands, twice; and the collector of cycles walks over all
that numba holds, again and again, while nearly nothing that it allocates can be freed.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

from numba.core import types
from numba.core.compiler import Flags


class KernelFlags(Flags):  # type: ignore[misc]
    """numba's flags, of which those that are set are compared first, and seldom all by their names.

    Their hash is that of the names of all options, as numba's own is; so it is one number.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Flags) and self._values == other._values
        return same or super().__eq__(other)

    def __hash__(self) -> int:
        return _HASH


_HASH = hash(Flags())

# What a function of numba's own gives for types: identities of it and of the types -> (signature, all of these). numba
# makes one object of every type; here they stay alive.
_SIGNATURES: dict[tuple[int, ...], tuple[Any, Any]] = {}


@contextlib.contextmanager
def signatures_kept(context: Any) -> Iterator[None]:
    """Ask once for each operator, or other function that is known by its signatures alone, and types of arguments."""
    if "resolve_function_type" in vars(context):
        yield  # within the compilation of a caller
        return
    resolve = context.resolve_function_type

    def kept(function: Any, args: Any, kws: Any) -> Any:
        if kws or not all(isinstance(argument, types.Type) for argument in args):
            return resolve(function, args, kws)
        key = (id(function), *map(id, args))
        if key in _SIGNATURES:
            return _SIGNATURES[key][0]
        signature = resolve(function, args, kws)
        known = function if isinstance(function, types.Type) else context._lookup_global(function)
        if isinstance(known, types.Function):
            plain = signature is not None and known.get_impl_key(signature) == known.typing_key
        else:
            plain = signature is not None and isinstance(function, str)  # of a loop: "getiter" and "iternext"
        if plain:
            _SIGNATURES[key] = signature, (function, args)
        return signature

    context.resolve_function_type = kept
    try:
        yield
    finally:
        del context.resolve_function_type


@contextlib.contextmanager
def cycles_held() -> Iterator[None]:
    """Let no collection of cycles interrupt what allocates much and frees little."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
