"""A given prior of the rows: one Gaussian per row, in natural parameters for the methods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tensorcep.core.packing import pack, unpack
from tensorcep.priors.base import Coupled
from tensorcep.priors.laws import ModePrior

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


def _precision_rows(value: ArrayLike, n: int, rank: int) -> np.ndarray:
    matrix = np.asarray(value, dtype=np.float64)
    if matrix.ndim < 2:
        matrix = np.eye(rank) * np.broadcast_to(matrix, (rank,))
    return np.broadcast_to(pack(np.broadcast_to(matrix, (*matrix.shape[:-2], rank, rank))), (n, rank * (rank + 1) // 2))


def natural_prior(prior: Prior, shape: Sequence[int], rank: int) -> tuple[np.ndarray, np.ndarray]:
    """The prior's natural parameters for every row: Lam (n_rows, P) and eta (n_rows, R)."""
    Lam, eta = [], []
    for n, mean, precision in zip(shape, prior.mean, prior.precision, strict=True):
        rows = _precision_rows(precision, n, rank)
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


class FixedPrior(NamedTuple):
    """A prior that stays as it is given (see `base.RowPrior`): Lam (n, P) and eta (n, R)."""

    Lam: np.ndarray
    eta: np.ndarray
    learned: bool = False

    def learn(self, means: list[np.ndarray], covs: list[np.ndarray], coupled: Sequence[Coupled | None] = ()) -> None:
        """Nothing is learned."""

    def expectation(self, now: ModePrior, posterior: Any) -> ModePrior:
        """The prior as it is."""
        return now

    def draw(self, now: ModePrior, rows: list[np.ndarray], rng: np.random.Generator) -> ModePrior:
        """The prior as it is."""
        return now

    def bound(self, posterior: Any) -> float:
        """A prior without parameters adds nothing."""
        return 0.0

    def for_rows(self, seen: Sequence[np.ndarray]) -> FixedPrior:
        """The prior itself: it does not depend on which rows have entries."""
        return self

    def shift(self, k: int, modes: ModePrior, natural: bool = False) -> None:
        """Rows have no features."""

    def unsure(self, k: int, modes: ModePrior, rows: np.ndarray) -> None:
        """Rows have no features."""

    def axis(self, k: int) -> None:
        """Rows do not depend on each other."""

    def links(self, k: int, modes: ModePrior) -> None:
        """Rows do not depend on each other."""

    def in_columns(self, Lam: np.ndarray, eta: np.ndarray, index: np.ndarray) -> FixedPrior:
        """The prior of other columns."""
        return FixedPrior(Lam, eta)
