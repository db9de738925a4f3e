"""From the components of a belief and coordinates to moments, draws and predictions of observations.

What is predicted is the mean over the components: each has the latent value's mean and variance, a point no variance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import logsumexp, ndtri

from tensorcep.core.components import Components, EntryTheta
from tensorcep.core.executor import Executor, ThreadExecutor
from tensorcep.cp.model import latent_moments
from tensorcep.cp.points import latent_of_points
from tensorcep.kernels.products import moments_over
from tensorcep.likelihoods.gaussian import mixture_quantile
from tensorcep.likelihoods.ordinal import probabilities_of_levels
from tensorcep.likelihoods.record import Likelihood
from tensorcep.likelihoods.uneven import NODES, strata, student_logpdf
from tensorcep.likelihoods.uneven import nodes as nodes_of

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
# Factors of a precision that quantiles and moments of limited values take: so many, over all components.
STRATA = 512
ALONE = ThreadExecutor(1)


def latent_components(belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (C, n) of the latent value at packed rows (n, K), in every component.

    Gaussian rows count as independent; draws keep the dependence that the sampler found.
    """
    if belief.cov is None:
        f = latent_of_points(belief.mean, rows)
        return f, np.broadcast_to(0.0, f.shape)
    rows = np.ascontiguousarray(rows)
    f, v = np.empty((belief.size, len(rows))), np.empty((belief.size, len(rows)))
    for c in range(belief.size):
        latent_moments(rows, belief.mean[c], belief.cov[c], f[c], v[c])
    return f, v


def latent(belief: Components, rows: np.ndarray, executor: Executor = ALONE) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of the latent value at packed rows (n, K)."""
    f, v = np.empty(len(rows)), np.empty(len(rows))

    def write(part: slice) -> None:
        if belief.cov is None:
            moments_over(latent_of_points(belief.mean, rows[part]), f[part], v[part])
        else:
            f[part], v[part] = _pooled(*latent_components(belief, rows[part]))

    _in_blocks(write, belief, len(rows), executor)
    return f, v


def latent_quantiles(
    belief: Components, rows: np.ndarray, levels: Sequence[float], executor: Executor = ALONE
) -> np.ndarray:
    """Quantiles (n, Q) of the latent value at these levels (Q,)."""
    out = np.empty((len(rows), len(levels)))

    def write(part: slice) -> None:
        mean, variance = latent_components(belief, rows[part])
        if belief.size == 1:
            out[part] = mean[0][:, None] + ndtri(np.asarray(levels)) * np.sqrt(variance[0])[:, None]
        elif belief.cov is None:
            out[part] = _quantiles_of_points(mean, np.asarray(levels))
        else:
            noiseless = np.broadcast_to(np.inf, mean.shape)
            for q, level in enumerate(levels):
                out[part, q] = mixture_quantile(float(level), mean, variance, noiseless)

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
        m, v, theta = extended(likelihood, _given(parameter, belief, rows[part]), extent, part)
        shape = parameter.shape_of(rows[part])
        if shape is not None and likelihood.censored:
            m, v, theta = _with_factors(m, v, theta, _factors(shape))
        elif shape is not None:
            theta = theta * (shape - 1.0) / shape  # 1 over the mean variance
        if belief.cov is None and likelihood.of_points is not None:
            mean[part], variance[part] = likelihood.of_points(m, theta)
        else:
            mean[part], variance[part] = _pooled(*_each(likelihood.predict, m, v, theta))

    _in_blocks(write, belief, len(rows), executor, COPIES * _width(belief) if likelihood.censored else 1)
    return mean, variance


def observed_logpdf(
    likelihood: Likelihood,
    belief: Components,
    rows: np.ndarray,
    y: np.ndarray,
    executor: Executor = ALONE,
    extent: np.ndarray | None = None,
) -> np.ndarray:
    """Log predictive density or mass (n,) of observations y at packed rows (n, K)."""
    out = np.empty(len(rows))
    likelihood, parameter = with_parameter(likelihood, belief.theta)

    def write(part: slice) -> None:
        m, v, t = extended(likelihood, _given(parameter, belief, rows[part]), extent, part)
        shape, n = parameter.shape_of(rows[part]), belief.size
        if shape is not None and belief.cov is None and not likelihood.censored:
            out[part] = logsumexp(student_logpdf(y[part] - m, t, shape), axis=0) - np.log(n)
            return
        weight: np.ndarray | float = 0.0
        if shape is not None:
            factors, log_weight = nodes_of(shape)
            (m, v, t), weight = _with_factors(m, v, t, factors), log_weight.reshape(-1, m.shape[1])
        (each,) = _each(lambda *a: (likelihood.logpdf(*a),), np.broadcast_to(y[part], m.shape), m, v, t)
        out[part] = logsumexp(each + weight, axis=0) - np.log(n)

    _in_blocks(write, belief, len(rows), executor, COPIES * _width(belief))
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
        m, v, t = extended(likelihood, _given(parameter, belief, rows[part]), extent, part)
        shape = parameter.shape_of(rows[part])
        if shape is None:
            each = _each(tails, np.broadcast_to(y[part], m.shape), m, v, t)
            lower[part], upper[part] = (side.mean(axis=0) for side in each)
            return
        factors, log_weight = nodes_of(shape)
        m, v, t = _with_factors(m, v, t, factors)
        share = np.exp(log_weight.reshape(m.shape)) / belief.size
        each = _each(tails, np.broadcast_to(y[part], m.shape), m, v, t)
        lower[part], upper[part] = ((share * side).sum(axis=0) for side in each)

    _in_blocks(write, belief, len(rows), ALONE, COPIES * _width(belief))
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
    several = belief.size > 1 or _width(belief) > 1
    pooled = likelihood.mixture_quantile is None and several
    evenly = _evenly_spaced(belief) if pooled else np.zeros(1)

    def write(part: slice) -> None:
        given = extended(likelihood, _given(parameter, belief, rows[part]), extent, part)
        shape = parameter.shape_of(rows[part])
        if shape is not None:
            given = _with_factors(*given, _factors(shape))
        if pooled:
            pool = [_each(lambda *a, u=u: (likelihood.quantile(u, *a),), *given)[0] for u in evenly]
            out[part] = np.quantile(np.concatenate(pool), levels, axis=0).T
            return
        for q, level in enumerate(levels):
            if not several:
                out[part, q] = likelihood.quantile(level, *(values[0] for values in given))
            elif likelihood.mixture_quantile is not None:
                out[part, q] = likelihood.mixture_quantile(level, *given)

    _in_blocks(write, belief, len(rows), executor, COPIES * max(len(evenly), _width(belief)))
    return out


def _factors(shape: np.ndarray) -> np.ndarray:
    """Equally likely factors (L, C, n) of these shapes (C, n), of which columns with the same sum are equal."""
    _, place, which = np.unique(shape.sum(axis=0), return_index=True, return_inverse=True)
    return strata(shape[:, place], -(-STRATA // len(shape)))[:, :, which.ravel()]


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
        out[part] = probabilities_of_levels(likelihood, *_given(parameter, belief, rows[part]))

    _in_blocks(write, belief, len(rows), executor, COPIES)
    return out


def _given(parameter: EntryTheta, belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of the latent value and the likelihood's parameter, (C, n) each."""
    m, v = latent_components(belief, rows)
    return m, v, np.broadcast_to(parameter.of(rows), m.shape)


def extended(
    likelihood: Likelihood,
    given: tuple[np.ndarray, np.ndarray, np.ndarray],
    extent: np.ndarray | None,
    part: slice = slice(None),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of the latent value and the parameter, of cells with extents."""
    if extent is None:
        return given
    m, theta = likelihood.at(given[0], given[2], extent[part])
    return m, given[1], theta


def _width(belief: Components) -> int:
    """Numbers of a cell's in a component, at most: one for each factor of its precision, where these differ."""
    if belief.theta is None or belief.theta.uneven is None:
        return 1
    return max(NODES, -(-STRATA // belief.size))


def _with_factors(
    m: np.ndarray, v: np.ndarray, theta: np.ndarray, factors: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, variance and parameter (L C, n) where L factors (L, C, n) multiply the parameter of each component."""
    theta = (factors * theta).reshape(-1, m.shape[1])
    return np.tile(m, (len(factors), 1)), np.tile(v, (len(factors), 1)), theta


def _pooled(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of a mixture of components with means and variances (C, n)."""
    n = mean.shape[1]
    pooled, spread, within, unused = np.empty(n), np.empty(n), np.empty(n), np.empty(n)
    moments_over(np.ascontiguousarray(mean), pooled, spread)
    moments_over(np.ascontiguousarray(variance), within, unused)
    return pooled, within + spread


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
