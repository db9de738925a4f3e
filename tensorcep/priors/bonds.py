"""Rows of a graph given their prior and what their entries say: a joint draw, or the moments of all of them.

A draw solves one perturbed system by conjugate gradients. Moments come from the Cholesky factor in blocks of all
columns; where that takes too long, columns are independent of each other in the approximation: their means are the same
then, and each has a factor of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.belief import ModePrior
from tensorcep.core.packing import pack, unpack
from tensorcep.kernels.gradients import perturb, solve_by_gradients
from tensorcep.priors.blocks import Marginals
from tensorcep.priors.elimination import Order, factor, inverted, solved
from tensorcep.priors.field import Field
from tensorcep.priors.graph import Net

# Products of numbers that a factor in blocks may take, some half a second, and numbers that it may hold.
MOST_WORK, MOST_NUMBERS = 3e8, 1e7
# Conjugate gradients end when the residual is so small beside the right side, or after so many steps.
TOL, MOST_STEPS = 1e-12, 20_000
NOT_POSITIVE = "the precision of the rows of a graph is not positive definite; use a tighter prior."


class Bonds(NamedTuple):
    """The prior of the rows of a graph that are in its field: precision and natural mean, in D columns.

    Attributes
    ----------
    of : Field
    own, field : (n, D) float64
        The diagonal of the precision, and precision times mean.
    between : (E, D) float64
        Less the precision's element of two neighbours.
    rest : (n, D) float64
        The diagonal without what edges add to it.
    which : (D,) int64
        The number of the length that counts most.
    """

    of: Field
    own: np.ndarray
    field: np.ndarray
    between: np.ndarray
    rest: np.ndarray
    which: np.ndarray


class Law(NamedTuple):
    """The law of all rows of a graph: mean, precision and length (D,) of each column, and its S (N, D)."""

    mean: np.ndarray
    precision: np.ndarray
    length: np.ndarray
    scale: np.ndarray


def bonds(of: Field, scale: np.ndarray, level: np.ndarray, centre: np.ndarray) -> Bonds:
    """The prior that is the sum over lengths of scale (L, D) K, and of the field K times levels (L, 1, D)."""
    own, between, rest = (np.ascontiguousarray(part.T @ scale) for part in (of.own, of.between, of.rest))
    return Bonds(of, own, of.total.T @ (level[:, 0] + scale * centre), between, rest, scale.argmax(axis=0))


def draw(prior: Bonds, Lam: np.ndarray, eta: np.ndarray, key: tuple[int, int, int]) -> np.ndarray:
    """A draw (n, D) of the rows whose entries say Lam (n, P), eta (n, D), at one length; the same for the same key.

    Raises
    ------
    FloatingPointError
        If the joint precision is not positive definite.
    """
    of, D = prior.of, prior.own.shape[1]
    Lam, right = np.ascontiguousarray(Lam[:, : D * (D + 1) // 2]), eta[:, :D] + prior.field
    scale = np.ascontiguousarray(of.scale[:, of.place][prior.which].T)
    if not perturb(Lam, prior.rest, of.left, of.right, prior.between, scale, key, right):
        raise FloatingPointError(NOT_POSITIVE)
    return _solution(_with_prior(Lam, prior.own), of.left, of.right, prior.between, right)


def marginals(prior: Bonds, Lam: np.ndarray, eta: np.ndarray) -> Marginals:
    """The moments of the rows whose entries say Lam (n, P), eta (n, D).

    Raises
    ------
    FloatingPointError
        If the joint precision is not positive definite.
    """
    D = prior.own.shape[1]
    Lam, eta = np.ascontiguousarray(Lam[:, : D * (D + 1) // 2]), eta[:, :D]
    of, right = prior.of, eta + prior.field
    found = _moments(of.pattern, (of.left, of.right), _with_prior(Lam, prior.own), prior.between, right)
    return found._replace(told=(Lam, eta))


def gap_moments(of: Field, modes: ModePrior, k: int, told: Any) -> tuple[np.ndarray, np.ndarray]:
    """Means (u, R) and packed covariances of the rows of mode k that are not in the field, given what others are told.

    All rows at once at the parameters `modes`, each column at one length; `told` as `marginals` was, of the first
    columns, or None.
    """
    drift: Any = modes.drifts[k]
    net, R = of.clock, len(drift.length)
    out = np.ones(net.n, dtype=bool)
    out[of.place] = False
    scale = of.scale[np.argmin(np.abs(of.lengths[:, None] - drift.length), axis=0)].T  # (N, R)
    Lam, eta = np.zeros((net.n, R * (R + 1) // 2)), np.zeros((net.n, R))
    if told is not None:
        P, D = told[0].shape[1], told[1].shape[1]
        Lam[of.place, :P] = told[0]
        eta[of.place, :D] += told[1]
    law = Law(modes.mean[k], np.diagonal(modes.precision[k]), drift.length, scale)
    found = moments_of_all(net, of.whole, law, Lam, eta)
    return found.mean[out], found.cov[out]


def moments_of_all(net: Net, whole: Order, law: Law, Lam: np.ndarray, eta: np.ndarray) -> Marginals:
    """The moments of all rows of a graph, of which the entries say Lam (N, P), eta (N, D).

    Raises
    ------
    FloatingPointError
        If the joint precision is not positive definite.
    """
    scale, length = law.scale, law.length
    own = law.precision * scale**2 * (1.0 + length**2 * net.matrix.sum(axis=1)[:, None])
    weight, field = law.precision * length**2 * net.weight[:, None], law.precision * scale**2
    for one, other in ((net.left, net.right), (net.right, net.left)):
        np.add.at(field, one, weight * scale[one] * (scale[one] - scale[other]))
    between = weight * scale[net.left] * scale[net.right]
    return _moments(whole, (net.left, net.right), _with_prior(Lam, own), between, eta + field * law.mean)


def _with_prior(Lam: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Packed blocks with this on their diagonals."""
    D, out = own.shape[1], Lam.copy()
    out[:, np.arange(D) * (np.arange(D) + 3) // 2] += own
    return out


def _solution(
    Lam: np.ndarray, left: np.ndarray, right: np.ndarray, between: np.ndarray, field: np.ndarray
) -> np.ndarray:
    """The solution (n, D) by conjugate gradients."""
    out = np.empty_like(field)
    if solve_by_gradients(Lam, left, right, between, field, TOL, MOST_STEPS, out) < 0:
        raise FloatingPointError(NOT_POSITIVE)
    return out


def _moments(
    order: Order, ends: tuple[np.ndarray, np.ndarray], Lam: np.ndarray, between: np.ndarray, field: np.ndarray
) -> Marginals:
    """The moments of rows of this joint precision and natural mean (n, D)."""
    D, numbers = field.shape[1], len(order.rows) + len(field)
    if D == 1 or (order.work * D**3 <= MOST_WORK and numbers * D * D <= MOST_NUMBERS):
        found = factor(order, unpack(Lam, D), between)
        mean, (cov, cross) = solved(found, field), inverted(found)
        return Marginals(mean, pack(cov), cross.copy(), found.log_det)
    mean = _solution(Lam, *ends, between, field)
    cov, cross, log_det = np.zeros_like(Lam), np.empty_like(between), 0.0
    for d in range(D):
        found, at = factor(order, Lam[:, d * (d + 3) // 2][:, None, None], between[:, [d]]), d * (d + 3) // 2
        log_det += found.log_det
        own, edges = inverted(found)
        cov[:, at], cross[:, d] = own[:, 0, 0], edges[:, 0]
    return Marginals(mean, cov, cross, log_det, apart=True)
