"""The processor that kernels are compiled for: a level of features that many machines share, and not the one at hand.

Code for a level is the same on all processors that have its features, so a seed gives the same bits on them, and what
a wheel brings along is what would be compiled here. Processors below the levels get code of their own. Levels are those
of the x86-64 psABI; 64-bit ARM has one, which every such processor has. NUMBA_CPU_NAME asks for another level, or for
any processor by LLVM's name (with NUMBA_CPU_FEATURES), and NUMBA_ENABLE_AVX=0 for none that has AVX.
"""

from __future__ import annotations

import functools
import hashlib
from typing import NamedTuple

from llvmlite import binding
from numba import config
from numba.core.codegen import JITCPUCodegen, get_host_cpu_features

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
    """What code is made for.

    Attributes
    ----------
    name : str
        Of folders that hold such code.
    cpu, features : str
        As LLVM takes them.
    wide : bool
        Whether registers hold eight numbers (AVX-512) and not four.
    """

    name: str
    cpu: str
    features: str
    wide: bool


def host_features() -> set[str]:
    """What the processor at hand has, by LLVM's names."""
    return {name for name, has in binding.get_host_cpu_features().items() if has}


def choose_target(
    architecture: str, has: set[str], cpu: str | None, features: str | None, avx: bool = True
) -> CpuTarget:
    """The target on a processor that `has` these features, where the user asks for `cpu` and `features`, if at all."""
    if features is None and avx:
        for level, needed in LEVELS.items():
            if architecture == "x86_64" and cpu in (None, level) and needed <= has:
                return CpuTarget(level, level, TUNING if level == "x86-64-v4" else "", level == "x86-64-v4")
        if architecture == ARM and cpu in (None, GENERIC):
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
