"""What sums over the entries make of the rows of a mode: natural parameters, and moments."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.cp.model.entries import sum_chunks
from tensorcep.cp.model.rows import RowState
from tensorcep.kernels.rows import row_moments
from tensorcep.kernels.slots import LANES

# Rows that are updated at a time: their numbers stay in the cache. Whole groups of LANES.
ROWS_AT_A_TIME = 64 * LANES


class Update(NamedTuple):
    """How the rows of a mode follow from their sums.

    Attributes
    ----------
    precision : float
        By which the sums are multiplied.
    Lam, eta, mean : (1 or n, P), (1 or n, Q), (1 or n, Q) float64
        Natural parameters of the prior of the rows, and its means: a line for each row, or one for all.
    n_clamped : int
        Columns that are clamped to 1, of which sums have products, too.
    """

    precision: float
    Lam: np.ndarray
    eta: np.ndarray
    mean: np.ndarray
    n_clamped: int = 0

    @property
    def lines(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Those of the prior."""
        return self.Lam, self.eta, self.mean

    def of(self, first: int, last: int) -> Update:
        """That of some rows of the mode."""
        Lam, eta, mean = (one if len(one) == 1 else one[first:last] for one in self.lines)
        return Update(self.precision, Lam, eta, mean, self.n_clamped)


def offsets_of(sum_Z2: np.ndarray, P: int, n_clamped: int) -> np.ndarray | None:
    """Sums over the entries of E[z c], (n, Q), from sums (n, P + C Q); None where no column is clamped."""
    if not n_clamped:
        return None
    n, width = sum_Z2.shape
    found: np.ndarray = sum_Z2[:, P:].reshape(n, n_clamped, (width - P) // n_clamped).sum(axis=1)
    return found


def update_natural(update: Update, sum_Z2: np.ndarray, sum_yz: np.ndarray, Lam: np.ndarray, eta: np.ndarray) -> None:
    """Set Lam (n, P) and eta (n, Q) of all rows of a mode, or of those that the update is of, from their sums."""
    P, Q = Lam.shape[1], eta.shape[1]
    for a in range(0, len(Lam), ROWS_AT_A_TIME):
        b = min(len(Lam), a + ROWS_AT_A_TIME)
        own, offset = update.of(a, b), offsets_of(sum_Z2[a:b], P, update.n_clamped)
        linear = sum_yz[a:b, :Q] if offset is None else sum_yz[a:b, :Q] - offset
        for sums, prior, out in ((sum_Z2[a:b, :P], own.Lam, Lam[a:b]), (linear, own.eta, eta[a:b])):
            np.multiply(sums, update.precision, out=out)
            out += prior


def update_chunks(
    first: int,
    last: int,
    chunks: np.ndarray,
    by_row: Any,
    sums: tuple[Any, ...],
    update: Update,
    rows: RowState,
    scratch: np.ndarray,
) -> None:
    """`sum_chunks` of z z' and of z, and what follows of them for the rows chunks[first]:chunks[last], in place."""
    sum_chunks(first, last, chunks, by_row, sums, scratch)
    a, b, begin = int(chunks[first]), int(chunks[last]), int(chunks[0])
    (_, _, sum_Z2), (_, _, sum_yz) = sums
    update_natural(update.of(a - begin, b - begin), sum_Z2[a:b], sum_yz[a:b], rows.Lam[a:b], rows.eta[a:b])
    row_moments(a, b, rows.Lam, rows.eta, rows.mean, rows.cov, rows.good)
