"""Compiled kernels on the disk: those that came with the package, then the user's; failures cost time and never a fit.

A folder of kernels is named by all that its code depends on: the content of every source that can get into a kernel,
the processor's level, Python, numba and its settings. So a kernel is never older than what it was compiled from, a
change in another file that is inlined into it included, and folders of different versions lie side by side. A wheel
brings folders for several levels (`python -m tensorcep.warming` fills them); what they lack is compiled into
NUMBA_CACHE_DIR, or else the user's folder of caches.

Where nothing can be written, or what is there is damaged, the kernel is compiled in this process, and one warning says
so through the logger "tensorcep".
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import logging
import platform
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import llvmlite
import numba
from llvmlite import binding
from numba import config
from numba.core import caching
from numba.core.codegen import JITCPUCodegen, get_host_cpu_features
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps
from numba.misc.appdirs import AppDirs

logger = logging.getLogger("tensorcep")

# The processor that kernels are compiled for: a level of features that many machines share, and not the one at hand.
#
# Code for a level is the same on all processors that have its features, so a seed gives the same bits on them, and what
# a wheel brings along is what would be compiled here. Processors below the levels get code of their own. Levels are
# those of the x86-64 psABI; 64-bit ARM has one, which every such processor has. NUMBA_CPU_NAME asks for another level,
# or for any processor by LLVM's name (with NUMBA_CPU_FEATURES), and NUMBA_ENABLE_AVX=0 for none that has AVX.

# Features by LLVM's names, beyond those of the level before.
V2 = {"cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3"}
V3 = V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
V4 = V3 | {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"}
LEVELS = {"x86-64-v4": V4, "x86-64-v3": V3}  # the highest first
# Loops in vectors of eight numbers, as the kernels' own operations have them. LLVM takes four at this level, to spare
# the clock of processors before Ice Lake.
TUNING = "-prefer-256-bit"
ARM, GENERIC = "aarch64", "generic"


class CpuTarget(NamedTuple):
    """What code is made for: its name in folders, LLVM's cpu and features, and whether registers hold eight numbers."""

    name: str
    cpu: str
    features: str
    wide: bool


def host_features() -> set[str]:
    """What the processor at hand has, by LLVM's names."""
    return {name for name, has in binding.get_host_cpu_features().items() if has}


def choose_target(machine: str, has: set[str], cpu: str | None, features: str | None, avx: bool = True) -> CpuTarget:
    """The target on a processor that `has` these features, where the user asks for `cpu` and `features`, if at all."""
    if features is None and avx:
        for level, needed in LEVELS.items():
            if machine == "x86_64" and cpu in (None, level) and needed <= has:
                return CpuTarget(level, level, TUNING if level == "x86-64-v4" else "", level == "x86-64-v4")
        if machine == ARM and cpu in (None, GENERIC):
            return CpuTarget(ARM, GENERIC, "", False)
    cpu = cpu or binding.get_host_cpu_name()
    features = get_host_cpu_features() if features is None else features
    digest = hashlib.sha256(features.encode()).hexdigest()[:8]
    return CpuTarget(f"{cpu}-{digest}", cpu, features, "+avx512f" in features.split(","))


def architecture() -> str:
    """Of this process, by LLVM's name."""
    return str(binding.get_process_triple().partition("-")[0])


def available_levels() -> list[str]:
    """What NUMBA_CPU_NAME can ask for on the processor at hand, one for each level that it has."""
    if architecture() == ARM:
        return [GENERIC]
    return [level for level, needed in LEVELS.items() if needed <= host_features()]


@functools.cache
def target() -> CpuTarget:
    """What the kernels of this process are compiled for."""
    return choose_target(architecture(), host_features(), config.CPU_NAME, config.CPU_FEATURES, bool(config.ENABLE_AVX))


class LevelCodegen(JITCPUCodegen):  # type: ignore[misc]
    """numba's code generator for the target."""

    def _get_host_cpu_name(self) -> str:
        return target().cpu

    def _get_host_cpu_features(self) -> str:
        return target().features


@functools.cache
def codegen() -> LevelCodegen:
    """The one code generator of the kernels."""
    return LevelCodegen("tensorcep")


PACKAGE = Path(__file__).resolve().parents[1]
SHIPPED = PACKAGE / "_compiled"
PREFIX = "tensorcep-"
KEPT = 8  # folders of other versions that stay in the user's cache, so that switching between them stays fast

# numba's settings that change the code.
SETTINGS = ("OPT", "BOUNDSCHECK", "LOOP_VECTORIZE", "SLP_VECTORIZE", "DEBUGINFO_DEFAULT", "LLVM_REFPRUNE_PASS")

# What reading a damaged cache can raise: whatever unpickling and linking of arbitrary bytes can.
DAMAGE: tuple[type[Exception], ...] = (caching.pickle.UnpicklingError, EOFError, ImportError, MemoryError)
DAMAGE += (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

KERNEL = re.compile(rb"^@(?:kernel|block_kernel|inlined|emitted_by)\b", re.MULTILINE)
IMPORT = re.compile(r"^from (tensorcep[\w.]*) import (\([^)]*\)|[^\n]*)|^import (tensorcep[\w.]*)", re.MULTILINE)


def compiled_sources(package: Path = PACKAGE) -> dict[str, bytes]:
    """Sources that can change a kernel, by module: those that define kernels, and what they import when loaded."""
    sources: dict[str, bytes] = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_bytes()
    found: dict[str, bytes] = {}
    todo = [name for name, source in sources.items() if KERNEL.search(source)]
    while todo:
        name = todo.pop()
        if name not in found:
            found[name] = sources[name]
            for base, names, module in IMPORT.findall(sources[name].decode()):  # names may be those of modules, too
                others = [base or module, *(f"{base}.{other}" for other in re.findall(r"\w+", names))]
                todo += [other for other in others if other in sources]
    return dict(sorted(found.items()))


@functools.cache
def folder_name() -> str:
    """Of the folder whose kernels this process can use."""
    digest = hashlib.sha256()
    for name, source in compiled_sources().items():
        digest.update(f"{name}\0{len(source)}\0".encode() + source)
    digest.update("".join(f"{name}={getattr(config, name, None)}\0" for name in SETTINGS).encode())
    versions = f"py{sys.version_info[0]}.{sys.version_info[1]}-numba{numba.__version__}-llvmlite{llvmlite.__version__}"
    system = f"{platform.system()}-{target().name}".lower()
    return f"{PREFIX}{digest.hexdigest()[:16]}-{system}-{versions}"


def user_folder() -> Path:
    """Where this process keeps what it compiles."""
    return Path(config.CACHE_DIR or AppDirs("tensorcep", appauthor=False).user_cache_dir) / folder_name()


class KernelCache(caching._Cache):  # type: ignore[misc]
    """The kept code of one kernel, a file for each signature; an error is a miss."""

    kind = "entry"  # of code, told apart from parts (`tensorcep.core.compile`)

    def __init__(self, python: Callable[..., Any]) -> None:
        self._python = python

    @property
    def cache_path(self) -> str:
        return str(user_folder())

    def enable(self) -> None:
        """Nothing, as `disable` and `flush`, which numba asks for: folders are never stale."""

    disable = flush = enable

    def load_overload(self, signature: Any, target_context: Any) -> CompileResult | None:
        """The code for a signature, linked into this process; None where there is none."""
        target_context.refresh()
        types, name = self._key(signature)
        for place in (SHIPPED / folder_name(), user_folder()):
            try:
                key, payload = caching.IndexDataCacheFile(str(place), "", "")._load_data(name)
                if key == types:
                    return self.rebuild(target_context, payload)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                warn_once(f"the cache of compiled kernels cannot be used ({error})")
            except DAMAGE as error:
                warn_once(f"the cache of compiled kernels in '{place}' is damaged ({error}) and is made anew")
        return None

    def save_overload(self, signature: Any, result: CompileResult) -> None:
        """Keep the code for a signature."""
        if result.library.has_dynamic_globals:
            return
        try:
            (types, name), folder = self._key(signature), user_folder()
            if not folder.is_dir():
                folder.mkdir(parents=True, exist_ok=True)
                others = (other for other in folder.parent.glob(PREFIX + "*") if other != folder)
                for old in sorted(others, key=lambda other: other.stat().st_mtime)[: -KEPT or None]:
                    shutil.rmtree(old, ignore_errors=True)
            caching.IndexDataCacheFile(str(folder), "", "")._save_data(name, (types, result._reduce()))
        except OSError as error:
            warn_once(f"the cache of compiled kernels cannot be used ({error})")

    def rebuild(self, target_context: Any, payload: Any) -> CompileResult:
        """The code as a process uses it."""
        return CompileResult._rebuild(target_context, *payload)

    def _key(self, signature: Any) -> tuple[tuple[Any, ...], str]:
        """The types of the arguments, and the name of the file of the code for them."""
        # A kernel whose address is asked for has a signature, one that is called has the types alone.
        types = tuple(getattr(signature, "args", signature))
        digest = hashlib.sha256(f"{types}\0{self._own_source}".encode()).hexdigest()[:16]
        python = self._python
        name = re.sub(r"[^\w.]", "", f"{python.__module__.removeprefix('tensorcep.')}.{python.__qualname__}")
        return types, f"{name}-{digest}.{self.kind}"

    @functools.cached_property
    def _own_source(self) -> str:
        """What the folder's name does not tell of the kernel: a file outside the package, and what a closure holds."""
        python = self._python
        digest = hashlib.sha256(dumps([cell.cell_contents for cell in python.__closure__ or ()]))
        digest.update(python.__code__.co_code)
        path = Path(inspect.getfile(python))
        if PACKAGE not in path.resolve().parents:
            with contextlib.suppress(OSError):
                digest.update(path.read_bytes() if path.is_file() else inspect.getsource(python).encode())
        return digest.hexdigest()


PROBLEMS: list[str] = []  # with the cache in this process: the first one alone


def warn_once(problem: str) -> None:
    """Log the first problem of this process; the others have the same cause."""
    if not PROBLEMS:
        PROBLEMS.append(problem)
        again = "kernels are compiled again, which takes some ten seconds in every process"
        logger.warning("%s; %s; set NUMBA_CACHE_DIR to a folder that can be written.", problem, again)
