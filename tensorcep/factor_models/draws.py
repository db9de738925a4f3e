"""Draws of the auxiliary variables of a relation's cells, on streams that do not depend on threads."""

from __future__ import annotations

import numpy as np

from tensorcep.core.compile import kernel
from tensorcep.core.executor import Executor
from tensorcep.core.random import start_stream
from tensorcep.kernels.polya_gamma import draw_crt, draw_pg

CELLS = 256  # cells that share a stream


@kernel
def _draw_omegas(first, last, b, c, seed, sweep, out):
    """out[n] ~ PG(b[n], c[n]) in the blocks first:last of CELLS cells; 0 where b is 0."""
    s = np.zeros(4, dtype=np.uint64)
    for block in range(first, last):
        start_stream(s, seed, sweep, block)
        for n in range(block * CELLS, min((block + 1) * CELLS, len(out))):
            out[n] = draw_pg(s, b[n], c[n]) if b[n] > 0.0 else 0.0


@kernel
def _draw_tables(first, last, x, r, seed, sweep, out):
    """out[n] ~ CRT(x[n], r[n]) in the blocks first:last of CELLS cells."""
    s = np.zeros(4, dtype=np.uint64)
    for block in range(first, last):
        start_stream(s, seed, sweep, block)
        for n in range(block * CELLS, min((block + 1) * CELLS, len(out))):
            out[n] = draw_crt(s, x[n], r[n])


def draw_omegas(b: np.ndarray, c: np.ndarray, seed: int, sweep: int, executor: Executor) -> np.ndarray:
    """omega ~ PG(b, c) for every cell of c; b may have one item for many cells, and is 0 where nothing is observed."""
    shapes, tilts = _flat(b, c.shape), _flat(c, c.shape)
    out = np.empty(c.size)
    executor.run(_draw_omegas, 0, -(-c.size // CELLS), shapes, tilts, seed, sweep, out)
    return out.reshape(c.shape)


def draw_tables(x: np.ndarray, r: np.ndarray, seed: int, sweep: int, executor: Executor) -> np.ndarray:
    """The numbers of tables CRT(x, r) for every cell of x."""
    counts, rates = _flat(x, x.shape), _flat(r, x.shape)
    out = np.empty(x.size)
    executor.run(_draw_tables, 0, -(-x.size // CELLS), counts, rates, seed, sweep, out)
    return out.reshape(x.shape)


def _flat(values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    return np.ascontiguousarray(np.broadcast_to(values, shape), dtype=np.float64).ravel()
