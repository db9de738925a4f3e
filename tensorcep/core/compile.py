"""The one decorator of kernels, what each is compiled to, and numba's front end without what it does twice."""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numba
from llvmlite import binding as llvm
from llvmlite import ir
from numba import types
from numba.core import cgutils, compiler, dispatcher
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult, Flags, compile_result
from numba.core.registry import CPUDispatcher
from numba.extending import intrinsic

from tensorcep.core.kernel_cache import KernelCache, codegen

# numba's front end without work that it does again and again: half of what a first fit waits for.
#
# None of this changes what is compiled. What an operator gives for its types is asked anew wherever it stands, twice;
# and the collector of cycles walks over all that numba holds, again and again, while nearly nothing that it allocates
# can be freed.

# What a function of numba's own gives for types: identities of it and of the types -> (signature, all of these). numba
# makes one object of every type; here they stay alive.
_SIGNATURES: dict[tuple[int, ...], tuple[Any, Any]] = {}


@contextlib.contextmanager
def keep_signatures(context: Any) -> Iterator[None]:
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
def hold_cycles() -> Iterator[None]:
    """Let no collection of cycles interrupt what allocates much and frees little."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# Kernels as Python calls them and as other kernels do, each compiled as its use needs.
#
# numba compiles every function that a kernel calls as if Python called it: with wrappers that unpack Python objects and
# with machine code of its own, which nobody runs, for its caller holds another copy. Two copies also round differently
# (each is optimised where it lies), and which one runs would depend on what else the process has compiled or loaded.
# Here a kernel that another calls is compiled to LLVM's intermediate code alone, and one that Python calls keeps the
# copies that lie in it to itself: less is compiled, and the same seed gives the same bits whether a process compiles
# its kernels or loads them, in whatever order.


@contextlib.contextmanager
def hold_interrupts() -> Iterator[None]:
    """Hold Ctrl-C back until a kernel is compiled: raised in what LLVM calls back, it would be lost without a word."""
    mine = threading.current_thread() is threading.main_thread()
    if not mine or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # another thread hears no signals; what somebody else does with them is not ours to change
        return
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if heard:
        raise KeyboardInterrupt


class EntryLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Machine code of a kernel that Python calls, and of copies of the kernels in it, which no other code sees."""

    _shared_module: Any

    def _finalize_final_module(self) -> None:
        for function in self._final_module.functions:
            if function.linkage == llvm.Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = "internal"
        super()._finalize_final_module()

    def _get_module_for_linking(self) -> Any:
        """Names alone: callers link the kernel as a part, and loading only asks for what is defined."""
        if self._shared_module is None:
            every = (f for f in self._final_module.functions if not f.is_declaration)
            seen = [f.name for f in every if f.linkage == llvm.Linkage.external]
            stubs = "\n".join(f'define void @"{name}"() {{ ret void }}' for name in seen)
            self._shared_module = llvm.parse_assembly(stubs)
        return self._shared_module


class PartLibrary(JITCodeLibrary):  # type: ignore[misc]
    """Intermediate code of a kernel that other kernels call, optimised, and never turned into machine code."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:  # numba's name, though here it is no object code
        self._ensure_finalized()
        return self.name, "part", self._get_module_for_linking().as_bitcode()


class _EntryCompiler(dispatcher._FunctionCompiler):  # type: ignore[misc, name-defined]
    """numba's compilation of one function, into a library of the kind that its use needs."""

    library: type[JITCodeLibrary] = EntryLibrary

    def _compile_core(self, args: Any, return_type: Any) -> CompileResult:
        flags = Flags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        flags.no_cfunc_wrapper = True  # what takes a kernel's address calls it by numba's own convention
        if self.library is PartLibrary:
            flags.no_cpython_wrapper = flags.no_compile = True
        library = self.library(codegen(), self.py_func.__qualname__)
        library.enable_object_caching()
        contexts = self.targetdescr.typing_context, self.targetdescr.target_context
        how = args, return_type, flags, self.locals, library, self.pipeline_class
        with keep_signatures(contexts[0]):
            return compiler.compile_extra(*contexts, self.py_func, *how)


class _PartCompiler(_EntryCompiler):
    library = PartLibrary

    def _compile_core(self, args: Any, return_type: Any) -> CompileResult:
        result = super()._compile_core(args, return_type)._replace(entry_point=object())
        result.target_context.insert_user_function(result.entry_point, result.fndesc, [result.library])
        return result


class PartCache(KernelCache):
    """The kept intermediate code of a part."""

    kind = "part"

    def rebuild(self, target_context: Any, payload: Any) -> CompileResult:
        """The code as callers link it."""
        (name, _, bitcode), fndesc, environment, signature, *_, reload_init, environments = payload
        for load in reload_init:
            load()
        library = PartLibrary(codegen(), name)
        library._final_module = library._shared_module = llvm.parse_bitcode(bitcode)
        library._finalized = True
        kept = {"fndesc": fndesc, "environment": environment, "signature": signature, "reload_init": reload_init}
        kept |= {"referenced_envs": environments, "library": library}
        contexts = {"typing_context": target_context.typing_context, "target_context": target_context}
        return compile_result(**contexts, **kept, entry_point=object(), objectmode=False, typing_error=None)


class Part(CPUDispatcher):  # type: ignore[misc]
    """A kernel as other kernels call it."""

    _compiler: Any

    def __init__(self, python: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(python, {}, options)
        self._compiler = _PartCompiler(python, self.targetdescr, options, self.locals, self._compiler.pipeline_class)
        self._cache = PartCache(python)

    def add_overload(self, result: CompileResult) -> None:
        """Keep it for callers; there is nothing that Python could call."""
        self.overloads[tuple(result.signature.args)] = result


class Kernel(CPUDispatcher):  # type: ignore[misc]
    """A kernel as Python calls it, or a caller of its address; other kernels that call it get its `Part`."""

    _compiler: Any

    def __init__(self, python: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(python, {}, options)
        self._compiler = _EntryCompiler(python, self.targetdescr, options, self.locals, self._compiler.pipeline_class)
        self._cache = KernelCache(python)

    def __reduce__(self) -> Any:  # other processes import it, with its place in the cache
        return self.__name__

    def compile(self, sig: Any) -> Any:
        """Compile the kernel for a signature, or load it."""
        with hold_interrupts(), hold_cycles():
            return super().compile(sig)

    @functools.cached_property
    def part(self) -> Part:
        """The kernel that other kernels call."""
        return Part(self.py_func, self.targetoptions)

    def get_call_template(self, args: Any, kws: Any) -> Any:  # asked where a kernel that calls this one is typed
        # numba compiles one copy for each literal number, in which the number is an argument all the same
        of_numbers = tuple(a.literal_type if isinstance(a, types.IntegerLiteral) else a for a in args)
        return self.part.get_call_template(of_numbers, kws)

    def get_overload(self, signature: Any) -> Any:  # asked where that call is compiled
        return self.part.get_overload(signature)


# The one kernel decorator, the array types of compiled interfaces, and calls by address.
#
# Importing this module, or any kernel module, compiles nothing: a kernel compiles (or loads from numba's cache) when it
# is first called.

# Re-association and contraction let reductions vectorise. NaN and infinity keep their meaning (no "nnan", "ninf"),
# because the sweeps detect a failed update by testing for them. A loop that adds up writes no array: if it does, LLVM
# compiles it as vectors and number by number, and which of them runs, and so the rounding, depends on how near to each
# other arrays happen to lie.
FASTMATH = {"reassoc", "contract", "arcp", "nsz"}

# NUMBA_DISABLE_JIT=1: kernels run as Python, under a debugger or for coverage. NUMBA_BOUNDSCHECK=1: they are compiled
# so that an index beyond an array raises IndexError.
AS_PYTHON, CHECKED = bool(numba.config.DISABLE_JIT), bool(numba.config.BOUNDSCHECK)


def _decorator(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return the decorator of kernels of one kind."""
    options |= {"nopython": True, "boundscheck": None, "nogil": True, "error_model": "numpy", "fastmath": FASTMATH}
    return lambda python: python if AS_PYTHON else Kernel(python, options)


kernel = _decorator()

# For kernels that allocate nothing: without reference counts. In a sweep the atomic counts of array views and of tuples
# of arrays otherwise cost as much as the arithmetic.
block_kernel = _decorator(_nrt=False)

# For small parts of a kernel: always compiled into it.
inlined = _decorator(_nrt=False, forceinline=True)

vec = types.Array(types.float64, 1, "C")

# tilted(y, m, v, theta, logz, alpha, beta): in-place over n entries, all (n,) float64
TILTED_SIGNATURE = types.void(vec, vec, vec, vec, vec, vec, vec)
# tilted2(y, m, v, theta, logz, alpha, beta, alpha2, beta2): the same, and alpha and beta twice derived
TILTED2_SIGNATURE = types.void(vec, vec, vec, vec, vec, vec, vec, vec, vec)
# loglik(y, f, theta, value, d1, d2): log p(y | f) and its first two derivatives in f, in-place over n entries
LOGLIK_SIGNATURE = types.void(vec, vec, vec, vec, vec, vec)


def emitted_by(rule: Callable[..., Any], checkable: bool = True) -> Callable[[Callable[..., Any]], Any]:
    """Decorate the Python form of an operation that compiles to LLVM IR, ``rule(*types) -> (signature, code)``."""

    def decorate(python: Callable[..., Any]) -> Any:
        if AS_PYTHON:
            return python
        if CHECKED and checkable:  # the bounds of the Python form
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


class Address(NamedTuple):
    """What is at a machine address: a kernel, for a signature."""

    function: Any
    signature: Any


# Those that have been asked for: another process has the same kernels elsewhere.
ADDRESSES: dict[int, Address] = {}


@functools.cache
def address_of(function: Any, signature: Any) -> Any:
    """Return the machine address of a compiled kernel, compiling it (or loading it from the cache) if needed."""
    # A kernel that receives another one as an address stays in numba's cache; one that receives it as a dispatcher
    # argument is compiled anew in every process.
    if AS_PYTHON:
        return function
    function.compile(signature)
    result = function.overloads[signature.args]
    address = int(result.library.get_pointer_to_function(result.fndesc.llvm_func_name))
    ADDRESSES[address] = Address(function, signature)
    return address


def _call_at(address: Any, *args: Any) -> Any:
    signature = types.void(address, types.Tuple(args))

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        given, call = cgutils.unpack_tuple(builder, values[1]), context.call_conv
        pointer = builder.inttoptr(values[0], ir.PointerType(call.get_function_type(types.none, args)))
        call.call_function(builder, pointer, types.none, args, given)
        return context.get_dummy_value()

    return signature, codegen


@emitted_by(_call_at, checkable=False)
def call_at(address, *args):
    """Call, inside a kernel, the kernel at `address` (see `address_of`) with the arguments of its signature."""
    address(*args)
