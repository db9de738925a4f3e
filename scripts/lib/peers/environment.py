"""Other packages in an environment of their own, each fit in a process of its own."""

from __future__ import annotations

import os
import subprocess
import tempfile
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from scripts.lib.common import say

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def prepare(folder: Path, packages: Sequence[str]) -> Path:
    """The Python of an environment that has the packages; makes it if need be."""
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    check = [str(python), "-c", "import " + ", ".join(packages)]
    if not python.exists() or subprocess.run(check, capture_output=True, check=False).returncode:
        say(f"installing {' and '.join(packages)} into {folder}")
        venv.create(folder, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def run_worker(python: Path, worker: Path, peer: str, threads: int, **given: Any) -> dict[str, np.ndarray]:
    """What a worker of this folder writes, as `WORKER PEER IN.npz OUT.npz`, about the arrays that it is given.

    Raises
    ------
    RuntimeError
        If the peer fails; the message has the last line that it wrote.
    """
    limits = dict.fromkeys(THREAD_VARIABLES, str(threads))
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "in.npz", Path(folder) / "out.npz"
        np.savez(source, **given)
        command = [str(python), str(worker), peer, str(source), str(target)]
        done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **limits}, check=False)
        if done.returncode:
            raise RuntimeError(f"{peer} failed: {done.stderr.strip().splitlines()[-1:]}")
        with np.load(target) as written:
            return dict(written)
