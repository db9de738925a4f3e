"""Entries laid out row by row in lanes: sums over the entries of a row then stay in registers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.cp.model import Entries
from tensorcep.kernels.slots import LANES


class RowBlocks(NamedTuple):
    """The entries of every row of one mode, in blocks of LANES that belong to one row each.

    Attributes
    ----------
    first : int
        First packed row of the mode.
    start : (n_k + 1,) int64
        Blocks of row i are start[i]:start[i + 1]; none for a row without entries.
    rows : (n_blocks, K - 1, LANES) int32
        Packed rows of the other modes; padding lanes point at one row past the last.
    entry : (n_blocks, LANES) int32
        Position of the entry in `Entries`, flat; padding lanes point at one position past the last.
    """

    first: int
    start: np.ndarray
    rows: np.ndarray
    entry: np.ndarray


def row_blocks(entries: Entries, k: int) -> RowBlocks:
    """Lay out the entries row by row of mode k, so that sums over a row's entries stay in registers."""
    n, n_rows = len(entries.permutation), int(entries.offsets[-1])
    flat = entries.rows.transpose(0, 2, 1).reshape(-1, entries.rows.shape[1])[:n]
    first, last = int(entries.offsets[k]), int(entries.offsets[k + 1])
    row = flat[:, k] - first
    counts = np.bincount(row, minlength=last - first)
    start = np.concatenate([[0], np.cumsum(-(-counts // LANES))]).astype(np.int64)
    order = np.argsort(row, kind="stable")
    rank = np.arange(n) - np.repeat(np.cumsum(counts) - counts, counts)
    place = start[row[order]] * LANES + rank
    others = np.full((start[-1] * LANES, flat.shape[1] - 1), n_rows, dtype=np.int32)
    others[place] = np.delete(flat[order], k, axis=1)
    index = np.full(start[-1] * LANES, entries.y.size, dtype=np.int32)
    index[place] = order
    others = np.ascontiguousarray(others.reshape(-1, LANES, flat.shape[1] - 1).transpose(0, 2, 1))
    return RowBlocks(first, start, others, index.reshape(-1, LANES))
