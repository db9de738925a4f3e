"""Numba's cache of compiled kernels, whose failures cost time and never a fit.

numba raises where its cache cannot be written, is full or is damaged. Here each of these is a miss: the kernel is
compiled in this process, and one warning says so through the logger "tensorcep".
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from typing import Any

from numba.core import caching

logger = logging.getLogger("tensorcep")

# What reading a damaged cache can raise: whatever unpickling and linking of arbitrary bytes can.
DAMAGE = (
    caching.pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    ImportError,
    LookupError,
    MemoryError,
    RuntimeError,
    TypeError,
    ValueError,
)


class ForgivingCache(caching.FunctionCache):  # type: ignore[misc]
    """A cache of one kernel for which an error is a miss; what is damaged is emptied, so it is mended by the next."""

    @contextlib.contextmanager
    def _guard_against_spurious_io_errors(self) -> Iterator[None]:  # numba's name: around every load and every save
        try:
            yield
        except OSError as error:
            warn_once(f"the cache of compiled kernels in '{self.cache_path}' cannot be used ({error})")
        except DAMAGE as error:
            warn_once(f"the cache of compiled kernels in '{self.cache_path}' is damaged ({error}) and is made anew")
            with contextlib.suppress(OSError):
                self.flush()


def cached(dispatcher: Any, python: Callable[..., Any]) -> Any:
    """Return the kernel with a cache on the disk, or as it is where no folder for one can be written."""
    try:
        dispatcher._cache = ForgivingCache(python)
    except (RuntimeError, OSError) as error:  # numba found no place, or lost it between asking and using it
        warn_once(f"no cache of compiled kernels can be kept ({error})")
    return dispatcher


@functools.cache
def _warned() -> list[str]:
    return []


def first_problem() -> str:
    """What went wrong first with the cache in this process; empty where nothing did."""
    return "".join(_warned()[:1])


def warn_once(problem: str) -> None:
    """Log the first problem of this process; the others have the same cause."""
    if not _warned():
        _warned().append(problem)
        logger.warning(
            "%s; kernels are compiled again, which takes some ten seconds in every process; set NUMBA_CACHE_DIR to a "
            "folder that can be written.",
            problem,
        )
