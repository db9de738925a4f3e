"""The one kernel decorator, the array types of compiled interfaces, and calls by address.

Importing this module, or any kernel module, compiles nothing: a kernel compiles (or loads from numba's cache) when it
is first called.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tensorcep.core.dispatch import Kernel

# Re-association and contraction let reductions vectorise. NaN and infinity keep their meaning (no "nnan", "ninf"),
# because the sweeps detect a failed update by testing for them. A loop that adds up writes no array: if it does, LLVM
# compiles it as vectors and number by number, and which of them runs, and so the rounding, depends on how near to each
# other arrays happen to lie.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}

# NUMBA_DISABLE_JIT=1: kernels run as Python, under a debugger or for coverage. NUMBA_BOUNDSCHECK=1: they are compiled
# so that an index beyond an array raises IndexError.
AS_PYTHON, CHECKED = bool(numba.config.DISABLE_JIT), bool(numba.config.BOUNDSCHECK)


def _compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of kernels of one kind."""
    options |= {"nopython": True, "boundscheck": None, "nogil": True, "error_model": "numpy", "fastmath": FASTMATH}
    return lambda python: python if AS_PYTHON else Kernel(python, targetoptions=options)


kernel = _compiled()

# For kernels that allocate nothing: without reference counts. In a sweep the atomic counts of array views and of tuples
# of arrays otherwise cost as much as the arithmetic.
block_kernel = _compiled(_nrt=False)

# For small parts of a kernel: always compiled into it.
inlined = _compiled(_nrt=False, forceinline=True)

f64 = types.float64
i64 = types.int64
vec = types.Array(f64, 1, "C")

# tilted(y, m, v, theta, logz, alpha, beta): in-place over n entries, all (n,) float64
TILTED_SIGNATURE = types.void(vec, vec, vec, vec, vec, vec, vec)
# tilted2(y, m, v, theta, logz, alpha, beta, alpha2, beta2): the same, and alpha and beta twice derived
TILTED2_SIGNATURE = types.void(vec, vec, vec, vec, vec, vec, vec, vec, vec)
# loglik(y, f, theta, value, d1, d2): log p(y | f) and its first two derivatives in f, in-place over n entries
LOGLIK_SIGNATURE = types.void(vec, vec, vec, vec, vec, vec)


def emitted_by(rule: Callable[..., Any], checkable: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """Decorate the Python form of an operation whose compiled form is LLVM IR, ``rule(*types) -> (signature, code)``.

    Kernels that run as Python use the Python form; those whose bounds are checked compile it, where it is `checkable`.
    """

    def decorate(python: Callable[..., Any]) -> Any:
        if AS_PYTHON:
            return python
        if CHECKED and checkable:
            return inlined(python)

        def definition(typing_context: Any, *args: Any) -> Any:
            return rule(*args)

        parameters = [inspect.Parameter("typing_context", inspect.Parameter.POSITIONAL_OR_KEYWORD)]
        parameters += inspect.signature(python).parameters.values()
        definition.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        definition.__name__, definition.__qualname__ = python.__name__, python.__qualname__
        definition.__doc__, definition.__module__ = python.__doc__, python.__module__
        return intrinsic(definition)

    return decorate


@functools.cache
def address_of(function: Any, signature: Any) -> Any:
    """Return the machine address of a compiled kernel, compiling it (or loading it from the cache) if needed.

    A kernel that receives another kernel as an address stays in numba's cache; one that receives it as a dispatcher
    argument is compiled anew in every process. Where kernels run as Python, the address is the function itself.
    """
    if AS_PYTHON:
        return function
    function.compile(signature)
    result = function.overloads[signature.args]
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))


def _call(address: Any, *args: Any) -> Any:
    signature = types.void(address, *args)

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        arg_types = signature.args[1:]
        function_type = context.call_conv.get_function_type(types.none, arg_types)
        pointer = builder.inttoptr(values[0], ir.PointerType(function_type))
        context.call_conv.call_function(builder, pointer, types.none, arg_types, values[1:])
        return context.get_dummy_value()

    return signature, codegen


@emitted_by(_call, checkable=False)
def call_tilted(address, y, m, v, theta, logz, alpha, beta):
    """Call, inside a kernel, the tilted-moment kernel at `address` (see `address_of`)."""
    address(y, m, v, theta, logz, alpha, beta)


@emitted_by(_call, checkable=False)
def call_tilted2(address, y, m, v, theta, logz, alpha, beta, alpha2, beta2):
    """Call, inside a kernel, the kernel of tilted moments and their curvature at `address` (see `address_of`)."""
    address(y, m, v, theta, logz, alpha, beta, alpha2, beta2)


@emitted_by(_call, checkable=False)
def call_loglik(address, y, f, theta, value, d1, d2):
    """Call, inside a kernel, the log-likelihood kernel at `address` (see `address_of`)."""
    address(y, f, theta, value, d1, d2)


@emitted_by(_call, checkable=False)
def call_narrow(address, loglik, y, m, v, theta, alpha, beta, scratch):
    """Call, inside a kernel, the projection at `address` (see `tensorcep.kernels.nearest.narrow`)."""
    address(loglik, y, m, v, theta, alpha, beta, scratch)


@emitted_by(_call, checkable=False)
def call_first(address, tilted, positive, nearest, narrow, loglik, S, m, vt, R, w, at):
    """Call, inside a kernel, the first-order message at `address` (`tensorcep.cp.cep.update.likelihood_message`)."""
    address(tilted, positive, nearest, narrow, loglik, S, m, vt, R, w, at)


@emitted_by(_call, checkable=False)
def call_second(address, tilted, positive, S, m, vt, R, w, at):
    """Call, inside a kernel, the second-order message at `address` (`tensorcep.cp.cep.second_order`)."""
    address(tilted, positive, S, m, vt, R, w, at)


@emitted_by(_call, checkable=False)
def call_clamped(address, k, columns, gaussian, censored, order, R, w, at):
    """Call, inside a kernel, the products with clamped columns at `address` (`tensorcep.cp.cep.update`)."""
    address(k, columns, gaussian, censored, order, R, w, at)
