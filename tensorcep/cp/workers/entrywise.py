"""What workers do for entries in blocks of lanes: draws of auxiliary variables, and squares. All of it is pure.

A draw's stream is that of its block, counted through all blocks. So arrays are made as if they began at the first one;
of what lies before a range nothing is ever touched, and the system gives no memory to it.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.held import Held
from tensorcep.cp.model.entries import sum_squares
from tensorcep.cp.model.rows import ALIGNED_BLOCKS
from tensorcep.cp.workers.store import Store
from tensorcep.cp.workers.tasks import Given
from tensorcep.kernels.slots import LANES
from tensorcep.kernels.streams import new_stream

# An array of a range of blocks as workers have it, or the one number that it holds.
Numbers = np.ndarray | float


class Blocks(NamedTuple):
    """A range of blocks."""

    first: int
    last: int


def blocks_of(n_blocks: int, n_parts: int) -> list[Blocks]:
    """At most so many ranges of about as many blocks."""
    whole = -(-n_blocks // ALIGNED_BLOCKS)
    cuts = sorted({min(n_blocks, ALIGNED_BLOCKS * (whole * part // n_parts)) for part in range(n_parts + 1)})
    return [Blocks(a, b) for a, b in itertools.pairwise(cuts)]


class KernelName(NamedTuple):
    """Where a worker finds a kernel."""

    module: str
    name: str

    def found(self) -> Callable[..., Any]:
        kernel: Callable[..., Any] = getattr(importlib.import_module(self.module), self.name)
        return kernel


def name_of_kernel(kernel: Any) -> KernelName | None:
    """The name of a kernel of a module; None where there is none by it."""
    python = getattr(kernel, "py_func", kernel)
    name = KernelName(str(getattr(python, "__module__", "")), str(getattr(python, "__name__", "")))
    module = importlib.import_module(name.module) if name.module.startswith("tensorcep.") else None
    return name if getattr(module, name.name, None) is kernel else None


def cut(array: np.ndarray, where: Blocks, keep: Callable[[np.ndarray], Held]) -> Held | float:
    """The range of an array as tasks take it: kept for workers, or one number."""
    part = array[where.first : where.last]
    flat = part.ravel()
    return float(flat[0]) if part.strides[0] == 0 or (flat == flat[0]).all() else keep(part)


def _whole(where: Blocks, given: Numbers) -> np.ndarray:
    out = np.empty((where.last, LANES))
    out[where.first :] = given
    return out


def draw_blocks(
    where: Blocks, name: KernelName, key: tuple[int, int, int], weighted: bool, given: list[Numbers]
) -> tuple[np.ndarray, ...]:
    """Draws of the targets, and if they are `weighted` of the weights, of the entries of a range of blocks.

    `given` is y, used, f and theta of `Augmentation.drawn`.
    """
    weight, target, mine = _whole(where, 1.0), _whole(where, 0.0), slice(where.first, where.last)
    arrays = (_whole(where, one) for one in given)
    name.found()(where.first, where.last, *arrays, key, weight, target, new_stream())
    return (target[mine].copy(), weight[mine].copy()) if weighted else (target[mine].copy(),)


def square_blocks(
    where: Blocks, rows: np.ndarray, given: Given, blocks: list[Any], store: Store, twice: np.ndarray
) -> np.ndarray:
    """`sum_squares` of a range of blocks, whose packed rows are `rows`."""
    square = np.empty((len(rows), LANES))
    with given.read(blocks, store) as (second,):
        sum_squares(0, len(rows), np.array(rows), second, np.array(twice), square, np.empty(second.shape[1]))
    return square
