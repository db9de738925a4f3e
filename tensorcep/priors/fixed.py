"""A given prior of the rows: one Gaussian per row, in natural parameters for the methods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tensorcep.core.packing import pack, unpack
from tensorcep.priors.base import RowPrior

ArrayPerMode = Sequence[ArrayLike]


class Prior(NamedTuple):
    """Gaussian prior of the factor rows, one item per mode.

    Attributes
    ----------
    mean : sequence of arrays
        Per mode, anything that broadcasts to (n_k, R): a number, (R,), or one mean per row (n_k, R).
    precision : sequence of arrays
        Per mode a number, the diagonal (R,), a shared matrix (R, R), or one matrix per row (n_k, R, R).

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import Prior
    >>> Prior([np.zeros((8, 1))] * 2, [np.eye(1)] * 2).precision[0].shape
    (1, 1)
    """

    mean: ArrayPerMode
    precision: ArrayPerMode


def natural_prior(prior: Prior, shape: Sequence[int], rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The prior's natural parameters for every row: Lam (n_rows, P) and eta (n_rows, R)."""
    Lam, eta = [], []
    for n, mean, precision in zip(shape, prior.mean, prior.precision, strict=True):
        matrix = np.asarray(precision, dtype=np.float64)
        if matrix.ndim < 2:
            matrix = np.eye(rank) * np.broadcast_to(matrix, (rank,))
        lines = pack(np.broadcast_to(matrix, (*matrix.shape[:-2], rank, rank)))
        rows = np.broadcast_to(lines, (n, rank * (rank + 1) // 2))
        centre = np.broadcast_to(np.asarray(mean, dtype=np.float64), (n, rank))
        Lam.append(rows)
        eta.append(np.einsum("nij,nj->ni", unpack(rows, rank), centre))
    return np.ascontiguousarray(np.concatenate(Lam)), np.ascontiguousarray(np.concatenate(eta))


def natural_lines(prior: Prior, shape: Sequence[int], rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The same with one line for each mode where all its rows share it: Lam (n, P) and eta (n, R)."""
    if any(np.ndim(precision) > 2 for precision in prior.precision):
        return natural_prior(prior, shape, rank)
    one, centres = (1,) * len(shape), [np.asarray(mean, dtype=np.float64) for mean in prior.mean]
    if all(centre.ndim < 2 for centre in centres):
        return natural_prior(prior, one, rank)
    Lam, _ = natural_prior(prior._replace(mean=[0.0] * len(shape)), one, rank)
    eta = []
    for n, centre, precision in zip(shape, centres, unpack(Lam, rank), strict=True):
        each = np.broadcast_to(precision, (n, rank, rank)), np.broadcast_to(centre, (n, rank))
        eta.append(np.einsum("nij,nj->ni", *each))
    return Lam, np.ascontiguousarray(np.concatenate(eta))


@dataclass(frozen=True, eq=False)
class FixedPrior(RowPrior):
    """A prior that stays as it is given: Lam (n, P) and eta (n, R)."""
