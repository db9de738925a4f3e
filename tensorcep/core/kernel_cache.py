"""Numba's cache of compiled kernels, whose failures cost time and never a fit.

numba raises where its cache cannot be written, is full or is damaged. Here each of these is a miss: the kernel is
compiled in this process, and one warning says so through the logger "tensorcep".
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
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


class Files(caching.IndexDataCacheFile):  # type: ignore[misc]
    """An index and its data; numba's own number the data by the index and write the index first.

    Of two processes that compile a kernel for two signatures at once, each would take the same number: the code of one
    would be loaded for the other. A name of the signature's own, and the data first, cost a miss at worst.
    """

    def save(self, key: Any, data: Any) -> None:
        name = self._data_name(int(hashlib.sha256(self._dump(key)).hexdigest()[:16], 16))
        self._save_data(name, data)
        self._save_index({**self._load_index(), key: name})


class ForgivingCache(caching.FunctionCache):  # type: ignore[misc]
    """A cache of one kernel for which an error is a miss; what is damaged is emptied, so it is mended by the next."""

    kind = "entry"  # of code, told apart from numba's own and from parts (`tensorcep.core.dispatch`)

    def __init__(self, python: Callable[..., Any]) -> None:
        super().__init__(python)
        place = self._impl
        self._cache_file = Files(self._cache_path, place.filename_base, place.locator.get_source_stamp())

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return (*super()._index_key(signature, codegen), self.kind)

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


def cached(dispatcher: Any, kind: type[ForgivingCache] = ForgivingCache) -> Any:
    """Return the kernel with a cache on the disk, or as it is where no folder for one can be written."""
    try:
        dispatcher._cache = kind(dispatcher.py_func)
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
