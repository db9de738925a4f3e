"""Hatchling's hook: a wheel takes along the kernels that `python -m tensorcep.warming tensorcep/_compiled` made.

With such kernels the wheel is one for this Python and platform, without any it is one for all; with another version of
numba than the one that compiled them its user compiles, as from the sources.
"""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# The oldest system that pip may choose the wheel for: kernels need nothing of it themselves, numba's wheels do.
GLIBC = "manylinux_2_17"


class WheelHook(BuildHookInterface):
    """Adds the compiled kernels of this Python, and says so in the wheel's name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the files to take along; hatchling calls this before it builds."""
        python = f"{sys.version_info[0]}.{sys.version_info[1]}"
        files = sorted(Path(self.root, "tensorcep", "_compiled").glob(f"*-py{python}-*/*"))
        if version == "editable" or not files:
            return
        for path in files:
            build_data["force_include"][str(path)] = path.relative_to(self.root).as_posix()
        platform = sysconfig.get_platform().replace("linux", GLIBC).replace("-", "_").replace(".", "_")
        build_data["pure_python"] = False
        build_data["tag"] = f"cp{python.replace('.', '')}-none-{platform}"
