"""From the components of a belief and coordinates to moments, draws and predictions of observations.

What is predicted is the mean over the components: each has the latent value's mean and variance, a point no variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtri

from tensorcep.core.components import Components, EntryTheta
from tensorcep.core.executor import ALONE, Executor
from tensorcep.cp.given import extended, factors_of, given_at, latent_components, width_of, with_factors
from tensorcep.cp.points import latent_of_points
from tensorcep.kernels.products import moments_over
from tensorcep.likelihoods.gaussian import mixture_quantile
from tensorcep.likelihoods.ordinal import probabilities_of_levels
from tensorcep.likelihoods.record import Likelihood
from tensorcep.likelihoods.uneven import nodes as nodes_of
from tensorcep.likelihoods.uneven import student_logpdf

CHUNK = 1 << 16
# Numbers of a block, a cell's in every component: so many draws of so many cells are in memory at a time and thread.
BLOCK = 1 << 22
BLOCK_CELLS = 1 << 17
# Copies of a block that general likelihoods make.
COPIES = 4
# Fewer cells are not worth a thread.
CELLS_PER_THREAD = 1024
# A quantile over components takes this many evenly spaced quantiles of each, and at least so many in all.
LEVELS_PER_DRAW = 16
LEVELS = 512
# Points count as Gaussians of this share of the largest variance beside them: equations in steps have no solution.
LEAST_DOUBT = 1e-4


def latent(belief: Components, rows: np.ndarray, executor: Executor = ALONE) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of the latent value at packed rows (n, K)."""
    f, v = np.empty(len(rows)), np.empty(len(rows))

    def write(part: slice) -> None:
        if belief.points:
            moments_over(latent_of_points(belief.mean, rows[part]), f[part], v[part])
        else:
            f[part], v[part] = _pooled(*latent_components(belief, rows[part]))

    _in_blocks(write, belief, len(rows), executor)
    return f, v if belief.doubt is None else v + belief.doubt.mean()


def latent_quantiles(
    belief: Components, rows: np.ndarray, levels: Sequence[float], executor: Executor = ALONE
) -> np.ndarray:
    """Quantiles (n, Q) of the latent value at these levels (Q,)."""
    out = np.empty((len(rows), len(levels)))

    def write(part: slice) -> None:
        mean, variance = latent_components(belief, rows[part])
        if belief.doubt is not None:
            variance = variance + np.maximum(belief.doubt, LEAST_DOUBT * belief.doubt.max())[:, None]
        if belief.size == 1:
            out[part] = mean[0][:, None] + ndtri(np.asarray(levels)) * np.sqrt(variance[0])[:, None]
            return
        spread = variance.any(axis=0)
        if not spread.all():
            out[part][~spread] = _quantiles_of_points(mean[:, ~spread], np.asarray(levels))
        if spread.any():
            noiseless = np.broadcast_to(np.inf, mean[:, spread].shape)
            each = (mixture_quantile(float(q), mean[:, spread], variance[:, spread], noiseless) for q in levels)
            out[part][spread] = np.stack(list(each), axis=1)

    _in_blocks(write, belief, len(rows), executor)
    return out


def _quantiles_of_points(f: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The quantiles (n, Q) of points f (S, n), linear between neighbours.

    numpy sorts a few hundred numbers in a quarter of the time that it takes to part them.
    """
    place = levels * (len(f) - 1)
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, len(f) - 1)
    ordered = np.sort(np.ascontiguousarray(f.T), axis=1)
    low, high = ordered[:, below], ordered[:, above]
    return np.asarray(low + (place - below) * (high - low))


def theta_of(belief: Components, likelihood: Likelihood) -> EntryTheta:
    """The likelihood's parameter: what was learned of it, or the one that is given."""
    return EntryTheta(np.array([[likelihood.default_theta]])) if belief.theta is None else belief.theta


def with_parameter(likelihood: Likelihood, theta: EntryTheta | None) -> tuple[Likelihood, EntryTheta]:
    """The likelihood and its parameter of one number per entry, whatever was learned of it in each component."""
    if theta is None:
        return likelihood, EntryTheta(np.array([[likelihood.default_theta]]))
    if likelihood.by_component is None:
        return likelihood, theta
    return likelihood.by_component(theta.values), EntryTheta(np.arange(len(theta.values), dtype=float)[:, None])


def observed_moments(
    likelihood: Likelihood,
    belief: Components,
    rows: np.ndarray,
    executor: Executor = ALONE,
    extent: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of a new observation at packed rows (n, K), with extents (n,) if it has some."""
    mean, variance = np.empty(len(rows)), np.empty(len(rows))
    likelihood, parameter = with_parameter(likelihood, belief.theta)

    def write(part: slice) -> None:
        m, v, theta = extended(likelihood, given_at(parameter, belief, rows[part]), extent, part)
        shape = parameter.shape_of(rows[part])
        if shape is not None and _sums_factors(likelihood):
            m, v, theta = with_factors(likelihood, (m, v, theta), factors_of(shape), shape)
        elif shape is not None:
            theta = theta * (shape - 1.0) / shape  # 1 over the mean variance
        if likelihood.log_slope is not None:  # long tails of a power may have no mean: that of normal ones as wide
            theta = np.broadcast_to(1.0 / np.mean(1.0 / theta, axis=0), theta.shape)
        if belief.points and likelihood.of_points is not None:
            mean[part], variance[part] = likelihood.of_points(m, theta)
        else:
            mean[part], variance[part] = _pooled(*_each(likelihood.predict, m, v, theta))

    _in_blocks(write, belief, len(rows), executor, COPIES * width_of(belief) if _sums_factors(likelihood) else 1)
    return mean, variance


def _sums_factors(likelihood: Likelihood) -> bool:
    """Whether predictions sum over factors of the parameter: those of all but values, whose law with them is known."""
    return likelihood.censored or likelihood.observes == "counts"


def observed_logpdf(
    likelihood: Likelihood,
    belief: Components,
    rows: np.ndarray,
    y: np.ndarray,
    executor: Executor = ALONE,
    extent: np.ndarray | None = None,
    moments: tuple[np.ndarray, np.ndarray] | None = None,
) -> np.ndarray:
    """Log predictive density or mass (n,) of observations y at packed rows (n, K).

    `moments` (n,) each, if given, become the mean and variance of the latent value, as `latent` has them.
    """
    out = np.empty(len(rows))
    likelihood, parameter = with_parameter(likelihood, belief.theta)

    def write(part: slice) -> None:
        given = given_at(parameter, belief, rows[part])
        if moments is not None:
            moments[0][part], moments[1][part] = _pooled(*given[:2])
        m, v, t = extended(likelihood, given, extent, part)
        shape, n = parameter.shape_of(rows[part]), belief.size
        if shape is not None and belief.points and not _sums_factors(likelihood):
            out[part] = logsumexp(student_logpdf(y[part] - m, t, shape), axis=0) - np.log(n)
            return
        weight: np.ndarray | float = 0.0
        if shape is not None:
            factors, log_weight = nodes_of(shape)
            weight = log_weight.reshape(-1, m.shape[1])
            m, v, t = with_factors(likelihood, (m, v, t), factors, shape)
        (each,) = _each(lambda *a: (likelihood.logpdf(*a),), np.broadcast_to(y[part], m.shape), m, v, t)
        out[part] = each[0] if len(each) == 1 else logsumexp(each + weight, axis=0) - np.log(n)

    _in_blocks(write, belief, len(rows), executor, COPIES * width_of(belief))
    if moments is not None and belief.doubt is not None:
        moments[1][:] += belief.doubt.mean()
    return out


def observed_tails(
    likelihood: Likelihood, belief: Components, rows: np.ndarray, y: np.ndarray, extent: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (n,) of a new observation of at most, and of at least, y at packed rows (n, K).

    Raises
    ------
    TypeError
        If the likelihood has no distribution function.
    """
    if likelihood.tails is None:
        raise TypeError(f"the likelihood {likelihood.name!r} has no tails.")
    lower, upper = np.empty(len(rows)), np.empty(len(rows))
    likelihood, parameter = with_parameter(likelihood, belief.theta)
    tails: Any = likelihood.tails

    def write(part: slice) -> None:
        m, v, t = extended(likelihood, given_at(parameter, belief, rows[part]), extent, part)
        shape = parameter.shape_of(rows[part])
        if shape is None:
            each = _each(tails, np.broadcast_to(y[part], m.shape), m, v, t)
            lower[part], upper[part] = (side.mean(axis=0) for side in each)
            return
        factors, log_weight = nodes_of(shape)
        m, v, t = with_factors(likelihood, (m, v, t), factors, shape)
        share = np.exp(log_weight.reshape(m.shape)) / belief.size
        each = _each(tails, np.broadcast_to(y[part], m.shape), m, v, t)
        lower[part], upper[part] = ((share * side).sum(axis=0) for side in each)

    _in_blocks(write, belief, len(rows), ALONE, COPIES * width_of(belief))
    return lower, upper


def observed_quantiles(
    likelihood: Likelihood,
    belief: Components,
    rows: np.ndarray,
    levels: Sequence[float],
    executor: Executor = ALONE,
    extent: np.ndarray | None = None,
) -> np.ndarray:
    """Quantiles (n, Q) of a new observation at these levels (Q,).

    Over several components they are those of the mixture, or of the pool of evenly spaced quantiles of all.
    """
    out = np.empty((len(rows), len(levels)))
    likelihood, parameter = with_parameter(likelihood, belief.theta)
    several = belief.size > 1 or width_of(belief) > 1
    pooled = likelihood.mixture_quantile is None and several
    evenly = _evenly_spaced(belief) if pooled else np.zeros(1)

    def write(part: slice) -> None:
        given = extended(likelihood, given_at(parameter, belief, rows[part]), extent, part)
        shape = parameter.shape_of(rows[part])
        if shape is not None:
            given = with_factors(likelihood, given, factors_of(shape), shape)
        if pooled:
            pool = [_each(lambda *a, u=u: (likelihood.quantile(u, *a),), *given)[0] for u in evenly]
            out[part] = np.quantile(np.concatenate(pool), levels, axis=0).T
            return
        for q, level in enumerate(levels):
            if not several:
                out[part, q] = likelihood.quantile(level, *(values[0] for values in given))
            elif likelihood.mixture_quantile is not None:
                out[part, q] = likelihood.mixture_quantile(level, *given)

    _in_blocks(write, belief, len(rows), executor, COPIES * max(len(evenly), width_of(belief)))
    return out


def _evenly_spaced(belief: Components) -> np.ndarray:
    """Evenly spaced levels of the quantiles that each component adds to a pool."""
    n = max(LEVELS_PER_DRAW, -(-LEVELS // belief.size))
    return (np.arange(n) + 0.5) / n


def observed_levels(
    likelihood: Likelihood, belief: Components, rows: np.ndarray, executor: Executor = ALONE
) -> np.ndarray:
    """Probabilities (n, L) of the levels of a new observation at packed rows (n, K)."""
    likelihood, parameter = with_parameter(likelihood, belief.theta)
    out = np.empty((len(rows), 0 if likelihood.levels is None else likelihood.levels.n))

    def write(part: slice) -> None:
        out[part] = probabilities_of_levels(likelihood, *given_at(parameter, belief, rows[part]))

    _in_blocks(write, belief, len(rows), executor, COPIES)
    return out


def _pooled(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of a mixture of components with means and variances (C, n); infinite with a mean."""
    n = mean.shape[1]
    pooled, spread, within, unused = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    moments_over(np.ascontiguousarray(mean), pooled, spread)
    moments_over(np.ascontiguousarray(variance), within, unused)
    return pooled, np.where(np.isinf(pooled), np.inf, within + spread)


def _each(function: Callable[..., tuple[np.ndarray, ...]], *arrays: np.ndarray) -> list[np.ndarray]:
    """Apply a function of flat arrays to (C, n) arrays."""
    shape = arrays[0].shape
    return [part.reshape(shape) for part in function(*(np.ascontiguousarray(a).ravel() for a in arrays))]


def _in_blocks(write: Callable[[slice], None], belief: Components, n: int, executor: Executor, width: int = 1) -> None:
    """Call ``write(part)`` for slices of n cells whose components, `width` numbers of each, fit in memory."""
    size = min(BLOCK_CELLS, max(1, BLOCK // (width * belief.size)))

    def write_some(first: int, last: int) -> None:
        for a in range(first, last, size):
            write(slice(a, min(a + size, last)))

    executor.run(write_some, 0, n, align=CELLS_PER_THREAD)
