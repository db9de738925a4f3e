"""Rows of a series given their prior and what their entries say: a joint draw, or the moments of all of them.

A circle is folded: block b holds the rows b and n - 1 - b, so that blocks are coupled by diagonals again. An odd number
of rows gets one more, which is integrated out: a node of precision d that is coupled by d with both ends of the edge
that closes the circle takes the place of that edge, if the ends' own precisions grow by d.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.core.packing import pack, unpack
from tensorcep.kernels.chained import draw_back, eliminate, marginals_back, nothing_before
from tensorcep.priors.axis import Links

# Couplings below this are none.
NO_COUPLING = 1e-50


class Blocks(NamedTuple):
    """A chain of m blocks: the arguments of `eliminate`.

    Attributes
    ----------
    Lam, eta : (m, P), (m, D) float64
        What entries say at precision 1, packed.
    precision : float
    own, field : (m, D) float64
        The diagonal of the precision beside it, and the natural mean.
    between : (m - 1, D) float64
        Couplings.
    """

    Lam: np.ndarray
    eta: np.ndarray
    precision: float
    own: np.ndarray
    field: np.ndarray
    between: np.ndarray


class Marginals(NamedTuple):
    """Moments of rows in their order: means (n, D), packed covariances (n, P), and those of neighbours, (E, D).

    `log_det` is that of the joint precision. Rows of a graph hold what their entries said, (n, P) and (n, D); `apart`
    says that their columns are independent of each other by approximation.
    """

    mean: np.ndarray
    cov: np.ndarray
    cross: np.ndarray
    log_det: float
    told: tuple[np.ndarray, np.ndarray] | None = None
    apart: bool = False


def draw(
    prior: Links,
    Lam: np.ndarray,
    eta: np.ndarray,
    key: tuple[int, int, int],
    precision: float = 1.0,
    overwrite: bool = False,
) -> np.ndarray:
    """A draw (n, D) of the rows whose entries say `precision` times Lam (n, P), eta (n, D); the same for the same key.

    Lam may be overwritten if `overwrite`.

    Raises
    ------
    FloatingPointError
        If the joint precision is not positive definite.
    """
    blocks = _blocks(prior, Lam, eta, precision)
    V, y, _ = _eliminated(blocks, overwrite)
    out = np.empty_like(y)
    draw_back(V, y, blocks.between, key, out)
    return _unfolded(out, len(prior.own)) if prior.of.closed else out


class PiecewiseDraw:
    """A draw as by `draw`, of rows on a line whose entries are told of some rows at a time, in order."""

    def __init__(self, prior: Links, precision: float):
        n, D = prior.own.shape
        self.prior, self.precision, self.told, self.log_det = prior, float(precision), 0, 0.0
        self.V, self.y, self.carry = np.empty((n, D * (D + 1) // 2)), np.empty((n, D)), nothing_before(D)

    def tell(self, Lam: np.ndarray, eta: np.ndarray) -> None:
        """What the entries of the next k rows say, (k, P) and (k, D)."""
        prior, V, y = self.prior, self.V, self.y
        parts = Lam, eta, self.precision, prior.own, prior.field, prior.between
        self.log_det = _checked(eliminate(self.told, *parts, V, y, self.carry))
        self.told += len(Lam)

    def rows(self, key: tuple[int, int, int]) -> np.ndarray:
        """The draw (n, D) once all is told."""
        out = np.empty_like(self.y)
        draw_back(self.V, self.y, self.prior.between, key, out)
        return out


def marginals(prior: Links, Lam: np.ndarray, eta: np.ndarray, precision: float = 1.0) -> Marginals:
    """The moments of the rows whose entries say `precision` times Lam (n, P), eta (n, D).

    Raises
    ------
    FloatingPointError
        If the joint precision is not positive definite.
    """
    blocks = _blocks(prior, Lam, eta, precision)
    V, y, log_det = _eliminated(blocks)
    mean, cov, cross = np.empty_like(y), np.empty_like(V), np.empty_like(blocks.between)
    marginals_back(V, y, blocks.between, mean, cov, cross)
    found = Marginals(mean, cov, cross, log_det)
    return _of_circle(found, prior) if prior.of.closed else found


def _eliminated(blocks: Blocks, overwrite: bool = False) -> tuple[np.ndarray, np.ndarray, float]:
    V, y = blocks.Lam if overwrite else np.empty_like(blocks.Lam), np.empty_like(blocks.eta)
    return V, y, _checked(eliminate(0, *blocks, V, y, nothing_before(y.shape[1])))


def _checked(log_det: float) -> float:
    """The log determinant, if it is one."""
    if not np.isfinite(log_det):
        raise FloatingPointError("the precision of the rows of a series is not positive definite; use a tighter prior.")
    return float(log_det)


def _blocks(prior: Links, Lam: np.ndarray, eta: np.ndarray, precision: float) -> Blocks:
    """The joint precision and natural mean of the rows."""
    n, D = prior.own.shape
    Lam, eta = Lam[:, : D * (D + 1) // 2], eta[:, :D]
    if not prior.of.closed:
        parts = (np.ascontiguousarray(part) for part in (Lam, eta, prior.own, prior.field, prior.between))
        Lam, eta, *rest = parts
        return Blocks(Lam, eta, float(precision), *rest)
    diagonal = np.arange(D) * (np.arange(D) + 3) // 2
    Lam, eta = precision * Lam, precision * eta + prior.field
    Lam[:, diagonal] += prior.own
    between = prior.between
    if n % 2:
        used, extra = _extra(prior)
        more = np.zeros((1, Lam.shape[1]))
        more[0, diagonal] = np.where(used, extra, 1.0)
        for end in (0, -1):
            Lam[end, diagonal] += extra
        Lam, eta = np.concatenate([Lam, more]), np.concatenate([eta, np.zeros((1, D))])
        between = np.concatenate([between[:-1], extra[None], extra[None]])
    return _folded(Lam, eta, between)


def _extra(prior: Links) -> tuple[np.ndarray, np.ndarray]:
    """Which columns have a coupling of the last row with the first one, and it, (D,)."""
    closing = prior.between[-1]
    used = closing > NO_COUPLING
    return used, np.where(used, closing, 0.0)


def _folded(Lam: np.ndarray, eta: np.ndarray, between: np.ndarray) -> Blocks:
    """Blocks of two rows each of an even number of rows on a circle."""
    (n, D), m = eta.shape, len(eta) // 2
    whole, i = np.zeros((m, 2 * D, 2 * D)), np.arange(D)
    whole[:, :D, :D], whole[:, D:, D:] = unpack(Lam[:m], D), unpack(Lam[: m - 1 : -1], D)
    for block, edge in ((0, n - 1), (m - 1, m - 1)):
        whole[block, i, D + i] -= between[edge]
        whole[block, D + i, i] -= between[edge]
    coupled = np.concatenate([between[: m - 1], between[n - 2 : m - 1 : -1]], axis=1)
    nothing = np.zeros((m, 2 * D))
    natural = np.concatenate([eta[:m], eta[: m - 1 : -1]], axis=1)
    return Blocks(pack(whole), natural, 1.0, nothing, nothing, np.ascontiguousarray(coupled))


def _unfolded(blocks: np.ndarray, n: int) -> np.ndarray:
    """Rows (n, D) of blocks of two."""
    D = blocks.shape[1] // 2
    return np.concatenate([blocks[:, :D], blocks[::-1, D:]])[:n]


def _of_circle(found: Marginals, prior: Links) -> Marginals:
    """The moments of rows on a circle from those of their blocks."""
    n, D = prior.own.shape
    m, i = len(found.mean), np.arange(D)
    whole = unpack(found.cov, 2 * D)
    cov = np.concatenate([whole[:, :D, :D], whole[::-1, D:, D:]])[:n]
    ends = [whole[block, i, D + i][None] for block in (0, m - 1)]
    cross = np.concatenate([found.cross[:, :D], ends[1], found.cross[::-1, D:], ends[0]])
    log_det = found.log_det
    if n % 2:  # the mean of the extra row given others is the sum of its neighbours
        used, d = _extra(prior)
        cross = np.concatenate([cross[: n - 1], np.where(used, cross[-1] - whole[0, i, i], 0.0)[None]])
        log_det -= float(np.log(np.where(used, d, 1.0)).sum())
    return Marginals(_unfolded(found.mean, n), pack(cov), cross, log_det)
