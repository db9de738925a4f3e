"""Kernels as Python calls them and as other kernels do, each compiled as its use needs.

numba compiles every function that a kernel calls as if Python called it: with wrappers that unpack Python objects and
with machine code of its own, which nobody runs, for its caller holds another copy. Two copies also round differently
(each is optimised where it lies), and which one runs would depend on what else the process has compiled or loaded.
Here a kernel that another calls is compiled to LLVM's intermediate code alone, and one that Python calls keeps the
copies that lie in it to itself: less is compiled, and the same seed gives the same bits whether a process compiles
its kernels or loads them, in whatever order.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

from llvmlite import binding as llvm
from numba.core import compiler, dispatcher, types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompileResult, Flags, compile_result
from numba.core.registry import CPUDispatcher

from tensorcep.core.cpu import codegen
from tensorcep.core.front_end import KernelFlags, cycles_held, signatures_kept
from tensorcep.core.kernel_cache import KernelCache


@contextlib.contextmanager
def interrupts_held() -> Iterator[None]:
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

    @classmethod
    def loaded(cls, generator: Any, name: str, bitcode: bytes) -> PartLibrary:
        """The library that was saved."""
        library = cls(generator, name)
        library._final_module = library._shared_module = llvm.parse_bitcode(bitcode)
        library._finalized = True
        return library


class _Compiler(dispatcher._FunctionCompiler):  # type: ignore[misc, name-defined]
    """numba's compilation of one function, into a library of the kind that its use needs."""

    library: type[JITCodeLibrary]

    def _customize_flags(self, flags: Flags) -> Flags:
        flags.no_cfunc_wrapper = True  # what takes a kernel's address calls it by numba's own convention
        return flags

    def _compile_core(self, args: Any, return_type: Any) -> CompileResult:
        flags = KernelFlags()
        self.targetdescr.options.parse_as_flags(flags, self.targetoptions)
        context = self.targetdescr.target_context
        library = self.library(codegen(), self.py_func.__qualname__)
        library.enable_object_caching()
        with signatures_kept(self.targetdescr.typing_context):
            return compiler.compile_extra(
                self.targetdescr.typing_context,
                context,
                self.py_func,
                args=args,
                return_type=return_type,
                flags=self._customize_flags(flags),
                locals=self.locals,
                library=library,
                pipeline_class=self.pipeline_class,
            )


class _EntryCompiler(_Compiler):
    library = EntryLibrary


class _PartCompiler(_Compiler):
    library = PartLibrary

    def _customize_flags(self, flags: Flags) -> Flags:
        flags.no_cpython_wrapper = flags.no_compile = True
        return super()._customize_flags(flags)

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
        return compile_result(
            typing_context=target_context.typing_context,
            target_context=target_context,
            entry_point=object(),
            signature=signature,
            objectmode=False,
            fndesc=fndesc,
            library=PartLibrary.loaded(codegen(), name, bitcode),
            environment=environment,
            reload_init=reload_init,
            referenced_envs=environments,
            typing_error=None,
        )


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

    def __init__(self, python: Callable[..., Any], locals: Any = None, targetoptions: Any = None) -> None:
        super().__init__(python, {} if locals is None else locals, targetoptions)  # numba 0.61 takes no None
        self._part: Part | None = None
        self._compiler = _EntryCompiler(
            python, self.targetdescr, targetoptions, self.locals, self._compiler.pipeline_class
        )
        self._cache = KernelCache(python)

    def compile(self, sig: Any) -> Any:
        """Compile the kernel for a signature, or load it."""
        with interrupts_held(), cycles_held():
            return super().compile(sig)

    @property
    def part(self) -> Part:
        """The kernel that other kernels call."""
        if self._part is None:
            self._part = Part(self.py_func, self.targetoptions)
        return self._part

    def get_call_template(self, args: Any, kws: Any) -> Any:  # asked where a kernel that calls this one is typed
        # numba compiles one copy for each literal number, in which the number is an argument all the same
        of_numbers = tuple(a.literal_type if isinstance(a, types.IntegerLiteral) else a for a in args)
        return self.part.get_call_template(of_numbers, kws)

    def get_overload(self, signature: Any) -> Any:  # asked where that call is compiled
        return self.part.get_overload(signature)
