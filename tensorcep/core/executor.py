"""Runs kernels over ranges of work."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np


class Threads:
    """Runs a kernel over ranges of work. Kernels release the interpreter lock, so plain threads are enough."""

    def __init__(self, n: int):
        self.n = n
        self._pool = ThreadPoolExecutor(n) if n > 1 else None

    def over(self, size: int, work: Callable[[int, int], None], align: int = 1) -> None:
        """Call ``work(first, last)`` on up to n contiguous ranges that cover range(size), aligned to `align`."""
        parts = min(self.n, -(-size // align))
        if self._pool is None or parts <= 1:
            work(0, size)
            return
        cuts = [min(size, align * (-(-size * t // (parts * align)))) for t in range(parts + 1)]
        for future in [self._pool.submit(work, a, b) for a, b in itertools.pairwise(cuts) if b > a]:
            future.result()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def n_threads(n_jobs: int | None) -> int:
    """Number of threads: None means 1, -1 all processors."""
    if n_jobs is None:
        return 1
    if n_jobs == -1:
        return os.cpu_count() or 1
    if isinstance(n_jobs, (int, np.integer)) and not isinstance(n_jobs, bool) and n_jobs >= 1:
        return int(n_jobs)
    raise ValueError(f"n_jobs must be an integer >= 1, -1 for all processors, or None for one; got {n_jobs!r}.")
