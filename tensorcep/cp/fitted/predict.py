"""Predictions: from the components of a belief and coordinates to moments, draws and quantiles of observations.

A belief says of cells, as likelihoods take it, latent mean and variance, and the parameter, per component. What is
predicted is the mean over the components: each has the latent value's mean and variance, a point no variance. `draw`
gives draws of rows, known and unknown ones, and of the likelihood's parameter; `knowledge` is what a belief knows of
the mean of an observation, apart from the noise of a single one. The questions of users, who name entries X, come last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from scipy.special import digamma, logsumexp, ndtri

from tensorcep.core import checks
from tensorcep.core.executor import ALONE, Executor
from tensorcep.core.fitted import Predictive
from tensorcep.cp.fitted.model import FitResult, FittedModel
from tensorcep.cp.inputs.coordinates import column_of, coords_to_predict, distinct_unknown_rows, names_of, placed_rows
from tensorcep.cp.model.latent import latent_moments, latent_of_points
from tensorcep.cp.model.parameters import theta_of, with_parameter
from tensorcep.cp.posterior import Components, Draws, EntryTheta, Mixture, draw_rows
from tensorcep.cp.targets.base import OfEach
from tensorcep.entries.sparse_tensor import SparseTensor
from tensorcep.entries.tables import UNSAID, as_frame, column_apart, split_observed
from tensorcep.kernels.rank_update import moments_over
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.gaussian import mixture_quantile
from tensorcep.likelihoods.parameters.scale_mixture import NODES, strata, student_logpdf
from tensorcep.likelihoods.parameters.scale_mixture import nodes as nodes_of
from tensorcep.priors.deviations import drawn, moments
from tensorcep.priors.graph import Net
from tensorcep.priors.ou_process import draw_at, laws_of, laws_of_mode, moments_at, n_lines
from tensorcep.priors.series import Clock

# Mean and variance of the latent value and the likelihood's parameter, (C, n) each.
Given: TypeAlias = tuple[np.ndarray, np.ndarray, np.ndarray]
Pair: TypeAlias = tuple[np.ndarray, np.ndarray]
Levels: TypeAlias = Sequence[float]
# Factors of a precision that quantiles and moments of limited values take: so many, over all components.
STRATA = 512


def latent_components(belief: Components, rows: np.ndarray) -> Pair:
    """Mean and variance (C, n) of the latent value at packed rows (n, K), in every component."""
    if belief.cov is None:  # draws keep the dependence that the sampler found
        f = latent_of_points(belief.mean, rows)
        v = np.broadcast_to(0.0, f.shape)
    else:  # Gaussian rows count as independent
        rows = np.ascontiguousarray(rows)
        f, v = np.empty((2, belief.size, len(rows)))
        for c in range(belief.size):
            latent_moments(rows, belief.mean[c], belief.cov[c], f[c], v[c])
    if belief.deviations is None:
        return f, v
    mean, variance = moments(belief.deviations, *pairs_at(belief, rows))
    return f + mean, v + variance


def pairs_at(belief: Components, rows: np.ndarray) -> Pair:
    """The row that deviates and the time of entries at packed rows (n, K), (n,) each; nan is a time not known."""
    of: Any = belief.deviations
    packed, along = rows[:, of.modes[0]], rows[:, of.modes[1]]
    row, place, m = packed - of.first[0], along - of.first[1], len(of.times)
    row = np.where((row >= 0) & (row < of.size), row, of.size + packed)  # each that is not known is another
    times = np.concatenate([of.times, belief.later, [np.nan]])
    place = np.where((place >= 0) & (place < m), place, along - belief.mean.shape[1] + len(belief.later) + m)
    return row, times[np.where((place >= 0) & (place < m + len(belief.later)), place, len(times) - 1)]


def given_at(
    likelihood: Likelihood, parameter: EntryTheta, belief: Components, rows: np.ndarray, extent: OfEach, part: slice
) -> Given:
    """Mean and variance of the latent value and the parameter, (C, n) each, of a part of cells, with extents (n,)."""
    m, v = latent_components(belief, rows[part])
    each = parameter.of(rows[part]) if parameter.factors is None else parameter.values * parameter.factors[:, None]
    theta = np.broadcast_to(each, m.shape)
    if extent is not None:
        m, theta = likelihood.at(m, theta, extent[part])
    return m, v, theta


def width_of(belief: Components) -> int:
    """Numbers of a cell's in a component, at most: one for each factor of its precision, where these differ."""
    return 1 if belief.theta is None or belief.theta.uneven is None else max(NODES, -(-STRATA // belief.size))


def factors_of(shape: np.ndarray) -> np.ndarray:
    """Equally likely factors (L, C, n) of these shapes (C, n), of which columns with the same sum are equal."""
    _, place, which = np.unique(shape.sum(axis=0), return_index=True, return_inverse=True)
    return strata(shape[:, place], -(-STRATA // len(shape)))[:, :, which.ravel()]


def with_factors(likelihood: Likelihood, given: Given, factors: np.ndarray, shape: np.ndarray) -> Given:
    """Mean, variance and parameter (L C, n), the latter times factors (L, C, n) of the law of this shape (C, n)."""
    m, v, theta = given
    n = m.shape[1]
    moved = (m + against(likelihood, factors, shape)).reshape(-1, n)
    return moved, np.tile(v, (len(factors), 1)), (factors * theta).reshape(-1, n)


def against(likelihood: Likelihood, factors: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """What latent values move by as factors (L, C, n) of this shape (C, n) multiply a dispersion; 0 of all else."""
    # entries tell the mean count r e^f, so that main effects of rows hold -log r; of a row that is not known they are
    # those of a row of the mean log r, and its mean count does not depend on its r
    if likelihood.observes != "counts":
        return np.zeros_like(factors)
    return np.asarray(digamma(shape) - np.log(shape) - np.log(factors))


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


def latent(belief: Components, rows: np.ndarray, executor: Executor = ALONE) -> Pair:
    """Mean and variance (n,) of the latent value at packed rows (n, K)."""
    f, v = np.empty(len(rows)), np.empty(len(rows))

    def write(part: slice) -> None:
        if belief.points:
            moments_over(latent_of_points(belief.mean, rows[part]), f[part], v[part])
        else:
            f[part], v[part] = _pooled(*latent_components(belief, rows[part]))

    _in_blocks(write, belief, len(rows), executor)
    return f, v if belief.doubt is None else v + belief.doubt.mean()


def latent_quantiles(belief: Components, rows: np.ndarray, levels: Levels, executor: Executor = ALONE) -> np.ndarray:
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
            # linear between neighbours; numpy sorts some hundred numbers in a quarter of the time of parting them
            place = np.asarray(levels) * (len(mean) - 1)
            below = np.floor(place).astype(np.int64)
            ordered = np.sort(np.ascontiguousarray(mean[:, ~spread].T), axis=1)
            low, high = ordered[:, below], ordered[:, np.minimum(below + 1, len(mean) - 1)]
            out[part][~spread] = low + (place - below) * (high - low)
        if spread.any():
            noiseless = np.broadcast_to(np.inf, mean[:, spread].shape)
            each = (mixture_quantile(float(q), mean[:, spread], variance[:, spread], noiseless) for q in levels)
            out[part][spread] = np.stack(list(each), axis=1)

    _in_blocks(write, belief, len(rows), executor)
    return out


def observed_moments(
    likelihood: Likelihood, belief: Components, rows: np.ndarray, executor: Executor = ALONE, extent: OfEach = None
) -> Pair:
    """Mean and variance (n,) of a new observation at packed rows (n, K), with extents (n,) if it has some."""
    mean, variance = np.empty(len(rows)), np.empty(len(rows))
    likelihood, parameter = with_parameter(likelihood, belief.theta)

    def write(part: slice) -> None:
        m, v, theta = given_at(likelihood, parameter, belief, rows, extent, part)
        shape = parameter.shape_of(rows[part])
        if shape is not None and _sums_factors(likelihood):
            m, v, theta = with_factors(likelihood, (m, v, theta), factors_of(shape), shape)
        elif shape is not None:
            theta = theta * (shape - 1.0) / shape  # 1 over the mean variance
        if likelihood.is_curved:  # long tails of a power may have no mean: that of normal ones as wide
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
    extent: OfEach = None,
    moments: Pair | None = None,  # (n,) each: become what `latent` gives
) -> np.ndarray:
    """Log predictive density or mass (n,) of observations y at packed rows (n, K)."""
    out = np.empty(len(rows))
    likelihood, parameter = with_parameter(likelihood, belief.theta)

    def write(part: slice) -> None:
        m, v, t = given_at(likelihood, parameter, belief, rows, None, part)
        if moments is not None:
            moments[0][part], moments[1][part] = _pooled(m, v)
        if extent is not None:
            m, t = likelihood.at(m, t, extent[part])
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
    likelihood: Likelihood, belief: Components, rows: np.ndarray, y: np.ndarray, extent: OfEach = None
) -> Pair:
    """Probabilities (n,) of a new observation of at most, and of at least, y at packed rows (n, K)."""
    likelihood, parameter = with_parameter(likelihood, belief.theta)
    lower, upper = np.empty(len(rows)), np.empty(len(rows))

    def write(part: slice) -> None:
        m, v, t = given_at(likelihood, parameter, belief, rows, extent, part)
        shape, share = parameter.shape_of(rows[part]), None
        if shape is not None:
            factors, log_weight = nodes_of(shape)
            m, v, t = with_factors(likelihood, (m, v, t), factors, shape)
            share = np.exp(log_weight.reshape(m.shape)) / belief.size
        each = _each(likelihood.tails, np.broadcast_to(y[part], m.shape), m, v, t)
        sides = (side.mean(axis=0) if share is None else (share * side).sum(axis=0) for side in each)
        lower[part], upper[part] = sides

    _in_blocks(write, belief, len(rows), ALONE, COPIES * width_of(belief))
    return lower, upper


def observed_quantiles(
    likelihood: Likelihood,
    belief: Components,
    rows: np.ndarray,
    levels: Sequence[float],
    executor: Executor = ALONE,
    extent: OfEach = None,
) -> np.ndarray:
    """Quantiles (n, Q) of a new observation at these levels (Q,)."""
    out = np.empty((len(rows), len(levels)))
    likelihood, parameter = with_parameter(likelihood, belief.theta)
    several = belief.size > 1 or width_of(belief) > 1
    pooled = likelihood.mixture_quantile is None and several  # of evenly spaced quantiles of all
    n = max(LEVELS_PER_DRAW, -(-LEVELS // belief.size)) if pooled else 1
    evenly = (np.arange(n) + 0.5) / n

    def write(part: slice) -> None:
        given = given_at(likelihood, parameter, belief, rows, extent, part)
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


def _pooled(mean: np.ndarray, variance: np.ndarray) -> Pair:
    """Mean and variance (n,) of a mixture of components with means and variances (C, n); infinite with a mean."""
    pooled, spread, within, unused = np.empty((4, mean.shape[1]))
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


def draw(
    belief: Components, likelihood: Likelihood, n_draws: int | None, rng: np.random.Generator
) -> tuple[np.ndarray, EntryTheta, np.ndarray]:
    """Draws of every row of the belief, (n_draws, n_rows, R), of the likelihood's parameter, and which components'."""
    theta, C = theta_of(belief, likelihood), belief.size
    is_precision = likelihood.learns_precision
    if belief.cov is None:  # draws as they are, without repetition where there are enough; n_draws=None takes them all
        which = np.arange(C) if n_draws is None else rng.choice(C, n_draws, replace=n_draws > C)
        return belief.mean[which], theta.of_points(which), which
    if n_draws is None:
        raise TypeError("n_draws must be an integer for a posterior in moments; got None.")
    if C == 1:
        values = draw_rows(belief.mean[0], belief.cov[0], n_draws, rng)
        which = np.zeros(n_draws, dtype=int)
        return values, theta.drawn(theta.draws(which, rng), which, is_precision), which
    which = rng.integers(C, size=n_draws)
    values = np.empty((n_draws, *belief.mean.shape[1:]))
    parameter = np.empty((n_draws, theta.values.shape[1]))
    for c in range(C):
        own = np.flatnonzero(which == c)
        values[own] = draw_rows(belief.mean[c], belief.cov[c], len(own), rng)
        parameter[own] = theta.draws(which[own], rng)
    return values, theta.drawn(parameter, which, is_precision), which


# Nodes of the Gauss-Hermite rule over a Gaussian latent value; exact where observations are linear in it.
NODES_OF_MEAN = 16


def knowledge(likelihood: Likelihood, belief: Components, rows: np.ndarray, coverage: float) -> dict[str, np.ndarray]:
    """What is known of the expected observations E[y | f] at packed rows (n, K): "mean", "sd", "lower" and "upper"."""
    mean, sd = np.empty(len(rows)), np.empty(len(rows))
    typical = None if belief.theta is None else belief.theta.averaged()
    at_ends, parameter_at_ends = with_parameter(likelihood, typical)
    likelihood, parameter = with_parameter(likelihood, belief.theta)
    nodes, weights = np.polynomial.hermite_e.hermegauss(1 if belief.points else NODES_OF_MEAN)
    weights = weights / weights.sum()
    step = max(1, 16 * CHUNK // (belief.size * len(nodes)))
    for part in (slice(a, a + step) for a in range(0, len(rows), step)):
        m, v = latent_components(belief, rows[part])
        theta = np.broadcast_to(parameter.of(rows[part]), m.shape)
        each = np.stack([_expected(likelihood, m + x * np.sqrt(v), theta) for x in nodes])
        mean[part] = middle = np.einsum("x,xcn->n", weights, each) / belief.size
        if belief.cov is not None and belief.doubt is not None:  # which moves no mean
            each = np.stack([_expected(likelihood, m + x * np.sqrt(v + belief.doubt[:, None]), theta) for x in nodes])
            middle = np.einsum("x,xcn->n", weights, each) / belief.size
        sd[part] = np.sqrt(np.einsum("x,xcn->n", weights, (each - middle) ** 2) / belief.size)
    tail = 0.5 * (1.0 - coverage)
    theta = parameter_at_ends.of(rows)[0]
    ends = latent_quantiles(belief, rows, (tail, 1.0 - tail))
    lower, upper = (_expected(at_ends, end, theta) for end in ends.T)  # ends of the latent value, as observations
    return {"mean": mean, "sd": sd, "lower": lower, "upper": upper}


def _expected(likelihood: Likelihood, f: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """The mean of an observation at latent values f."""
    return _each(likelihood.predict, f, np.zeros(f.shape), theta)[0]


# Rows of series at times that the model does not know: forecasts, and what lies between its rows.


class Placed(NamedTuple):
    """Where entries are among the rows of a belief with rows at other times."""

    belief: Components  # known rows, one unknown row of each mode, and then rows at other times
    coords: np.ndarray  # (n, K) int64, with a row that the model knows in place of each at another time
    later: np.ndarray  # (n, K) int64, the row of the belief of each at another time; -1 of others

    def rows(self, known: np.ndarray) -> np.ndarray:
        """The rows of the belief, of the packed rows (n, K) of `coords`."""
        return np.where(self.later >= 0, self.later, known)


def placed(model: FittedModel, X: Any, joint: bool = False) -> Placed:
    """The entries X among the rows of the belief; those of a mode at other times are drawn together if `joint`."""
    fit = model.fit
    X = fit.observation.without_extent(X)
    belief, coords = fit.belief, coords_to_predict(X, fit.labels)
    later, shape = np.full(coords.shape, -1), fit.posterior.shape
    if not any(clock is not None for clock in fit.series):
        return Placed(belief, coords, later)
    coords, seen = coords.copy(), fit.posterior.seen
    for k, clock in enumerate(fit.series):
        unknown = np.flatnonzero((coords[:, k] < 0) | (coords[:, k] >= shape[k]))
        if clock is None or isinstance(clock, Net) or not len(unknown):
            continue
        laws = _laws(fit, k, clock)
        if laws is None:
            continue
        # labels that have none are at nan
        known = fit.labels[k] is not None
        times = clock.times_of(pd.Index(column_of(as_frame(X), fit.labels, k))) if known else coords[:, k] / clock.step
        times = times[unknown]
        unknown, times = unknown[np.isfinite(times)], times[np.isfinite(times)]
        distinct, which = np.unique(times, return_inverse=True)
        later[unknown, k] = belief.mean.shape[1] + which.ravel()
        coords[unknown, k] = int(np.argmax(seen[fit.layout.rows[k]]))
        rows, cov = belief.mean[:, fit.layout.rows[k]], belief.cov
        if cov is None:
            # the noise of a time is always the same, so that a row does not depend on what else is asked for
            keys, size = [int(np.float64(time + 0.0).view(np.uint64)) for time in distinct], (len(rows), rows.shape[2])
            noise = np.stack([np.random.default_rng([key, k]).standard_normal(size) for key in keys], axis=1)
            mean = draw_at(clock, clock.times, rows, laws, distinct, noise, joint).astype(belief.mean.dtype)
        else:
            pairs = zip(rows, cov[:, fit.layout.rows[k]], laws, strict=True)
            found = [moments_at(clock, clock.times, *one, distinct) for one in pairs]
            mean, new_cov = (np.stack(part) for part in zip(*found, strict=True))
            belief = belief._replace(cov=np.concatenate([cov, new_cov], axis=1))
        belief = belief._replace(mean=np.concatenate([belief.mean, mean], axis=1))
        if belief.deviations is not None:
            along = belief.deviations.modes[1] == k
            belief = belief._replace(later=np.append(belief.later, distinct if along else distinct * np.nan))
    return Placed(belief, coords, later)


def _laws(fit: FitResult, k: int, clock: Clock) -> Any:
    """What the fit learned of how the rows of mode k depend on each other: of all draws, or a list by member."""
    result = fit.posterior
    if isinstance(result, Draws):
        if result.drifts is None:
            return None
        first, lines = sum(n_lines(one) for one in fit.series[:k] if one is not None), np.asarray(result.drifts)
        return laws_of(lines.reshape(-1, *lines.shape[2:])[:, first : first + n_lines(clock)])
    members = result.members if isinstance(result, Mixture) else (result,)
    priors: list[Any] = [getattr(member, "mode_prior", None) for member in members]
    learned = all(prior is not None and prior.drifts and prior.drifts[k] is not None for prior in priors)
    return [laws_of_mode(prior, k) for prior in priors] if learned else None


def belief_at(model: FittedModel, X: Any) -> tuple[Components, np.ndarray]:
    """The belief, with rows of series at other times where X asks for such, and its rows (n, K) of the entries."""
    found = placed(model, X)
    return found.belief, found.rows(model.packed(found.coords))


def predict_latent(model: FittedModel, X: Any) -> Pair:
    """Posterior mean and variance of the latent value (the CP sum, plus a lower limit) of each entry."""
    belief, rows = belief_at(model, X)
    with model.threads() as executor:
        mean, variance = latent(belief, rows, executor)
    return mean + model.fit.observation.origin, variance


def observed(model: FittedModel, X: Any, **extent: Any) -> Pair:
    """Mean and variance of a new observation of each entry."""
    (belief, rows), extents = belief_at(model, X), model.fit.observation.extent_of(X, extent)
    with model.threads() as executor:
        return observed_moments(model.likelihood_of_new, belief, rows, executor, extents)


def predicted(model: FittedModel, X: Any, return_std: bool, **extent: Any) -> Any:
    """Means of new observations and, if asked, their standard deviations."""
    if return_std:
        model.check_uncertain("return_std=True")
    mean, variance = observed(model, X, **extent)
    infinite = np.isinf(mean)  # as means of exp(f) are where f is hardly known
    if infinite.any():
        which = f"{int(infinite.sum())} of {mean.size} predicted means (the first is entry {int(np.argmax(infinite))})"
        checks.warn_user(f"{which} {checks.INFINITE}; predict_interval tells what is likely there.", UserWarning)
    return (mean, np.sqrt(variance)) if return_std else mean


def interval(model: FittedModel, X: Any, coverage: float, of_latent: bool = False, **extent: Any) -> np.ndarray:
    """Central interval of a new observation of each entry, or of its latent value, (n, 2)."""
    model.check_uncertain("predict_interval")
    (belief, rows), extents = belief_at(model, X), model.fit.observation.extent_of(X, extent)
    tail, likelihood = 0.5 * (1.0 - checks.check_fraction("coverage", coverage)), model.likelihood_of_new
    with model.threads() as executor:
        if of_latent:
            return latent_quantiles(belief, rows, (tail, 1.0 - tail), executor)
        return observed_quantiles(likelihood, belief, rows, (tail, 1.0 - tail), executor, extents)


def observed_levels(model: FittedModel, X: Any) -> np.ndarray:
    """Probabilities (n, L) of the levels of a new observation of each entry."""
    belief, rows = belief_at(model, X)
    levels: Any
    levels, parameter = with_parameter(model.likelihood_of_new, belief.theta)
    out = np.empty((len(rows), levels.levels.n))

    def write(part: slice) -> None:
        out[part] = levels.probabilities(*given_at(levels, parameter, belief, rows, None, part))

    with model.threads() as executor:
        _in_blocks(write, belief, len(rows), executor, COPIES)
    return out


def judged_entries(
    model: FittedModel, X: Any, y: Any, modes: Any, value: Any, extent: dict[str, Any], empty: bool = False
) -> tuple[Any, Any, np.ndarray | None]:
    """Cells, what was observed there or None, and extents (n,) or None, of entries that are to be judged."""
    how = model.fit.observation
    extents, X = how.extent_of(X, extent, needed=True), how.without_extent(X, extent)
    return *split_observed(names_of(model.fit.labels), X, y, modes, value, empty), extents


def log_score(model: FittedModel, X: Any, y: Any, modes: Any, value: Any, extent: dict[str, Any]) -> np.ndarray:
    """Log predictive density or mass of the observations y, (n,); of counts exposure= or n_trials= as in `fit`."""
    X, y, extents = judged_entries(model, X, y, modes, value, extent)
    likelihood, (belief, rows) = model.likelihood_of_new, belief_at(model, X)
    values = likelihood.check_y(checks.check_values(model.fit.observation.coded(y), len(rows), name="y"))
    with model.threads() as executor:
        density = observed_logpdf(likelihood, belief, rows, values, executor, extents)
    return np.asarray(density + likelihood.log_slopes(values))


class EntryPredictive(Predictive):
    """The laws of new observations at entries."""

    def __init__(self, model: FittedModel, X: Any):
        self._model, self._X = model, X

    @cached_property
    def _moments(self) -> Pair:
        return observed(self._model, self._X)

    @property
    def mean(self) -> np.ndarray:
        return self._moments[0]

    @property
    def sd(self) -> np.ndarray:
        self._model.check_uncertain("sd")
        return np.sqrt(self._moments[1])

    @property
    def has_interval(self) -> bool:
        return self._model.has_uncertainty and self._model.fit.likelihood.observes != "labels"

    def interval(self, coverage: float) -> np.ndarray:
        return interval(self._model, self._X, coverage)

    def holds(self, y: np.ndarray, coverage: float) -> np.ndarray:
        lower, upper = self.interval(coverage).T
        return (lower <= y) & (y <= upper)

    def log_score(self, y: np.ndarray) -> np.ndarray:
        return log_score(self._model, self._X, y, None, UNSAID, {})


def row_draws(
    model: FittedModel, n_samples: int | None, X: Any, rng: np.random.Generator, alone: bool = False
) -> tuple[np.ndarray, EntryTheta, np.ndarray, np.ndarray]:
    """Draws of all rows (the model's, then unknown ones), the parameter, X's latent values; and its packed rows."""
    found = placed(model, X, joint=True)
    belief, rows = found.belief, found.rows(model.packed(found.coords))
    n_known, n_later = sum(model.fit.shape), belief.mean.shape[1] - sum(model.fit.shape) - len(model.fit.shape)
    distinct, origin = distinct_unknown_rows(rows, found.coords, model.fit.shape, n_later)
    chosen = belief if belief.cov is None else belief._replace(mean=belief.mean[:, origin], cov=belief.cov[:, origin])
    values, theta, which = draw(chosen, model.fit.likelihood, n_samples, rng)
    if belief.cov is None:
        values = values[:, origin]
        for row in range(n_known + n_later, len(origin)):  # unknown rows are independent
            values[:, row] = belief.mean[rng.integers(0, belief.size, len(values)), origin[row]]
    f = latent_of_points(values, distinct)
    if belief.deviations is not None:
        pairs = pairs_at(belief, rows)
        new = rows[:, belief.deviations.modes[0]] >= n_known  # of such rows every one is another
        own = np.where(new, pairs[0] + distinct[:, belief.deviations.modes[0]], pairs[0])
        f = f + drawn(belief.deviations, which, own, pairs[1], rng)
    if alone and belief.doubt is not None:  # which the noise of an observation would hold
        f = f + np.sqrt(belief.doubt[which])[:, None] * rng.standard_normal(f.shape)
    return values, theta, f, rows


def observations(
    model: FittedModel, f: np.ndarray, rows: np.ndarray, theta: EntryTheta, rng: np.random.Generator, extent: Any = None
) -> np.ndarray:
    """A new observation for each latent value f (S, n) at packed rows (n, K), with extents (n,) if it has some."""
    likelihood, parameter = with_parameter(model.likelihood_of_new, theta.predictive())
    each, shape = np.broadcast_to(parameter.of(rows), f.shape), theta.shape_of(rows)
    if shape is not None:  # each observation has a factor
        factors = np.maximum(rng.gamma(np.broadcast_to(shape, each.shape)), np.finfo(float).tiny) / shape
        f, each = f + against(likelihood, factors, shape), np.asarray(each * factors)
    elif theta.factors is not None:  # of a law that is spread over the components any of them tells one
        each = each * rng.choice(theta.factors, each.shape)
    if extent is not None:
        f, each = likelihood.at(f, each, extent)
    return np.stack([likelihood.sample(rng, *pair) for pair in zip(f, each, strict=True)])


def sample_posterior(model: FittedModel, n_samples: int = 1, X: Any = None, random_state: Any = None) -> Any:
    """Draw from the posterior of the factors; of a sampler's fit, draws of its chains."""
    model.check_uncertain("sample_posterior")
    rng, n = checks.check_random_state(random_state), checks.check_int("n_samples", n_samples)
    if X is not None:
        return row_draws(model, n, X, rng, alone=True)[2] + model.fit.observation.origin
    draws, *_ = draw(model.fit.belief, model.fit.likelihood, n, rng)
    draws = model.fit.aligned_draws(draws[:, : sum(model.fit.shape)])
    return [draws[:, own] for own in model.fit.layout.rows]


def sample_y(model: FittedModel, X: Any, n_samples: int = 1, random_state: Any = None, **extent: Any) -> np.ndarray:
    """Draw new observations of the entries X, (n_samples, n); of counts exposure= or n_trials= as in `fit`."""
    extents = model.fit.observation.extent_of(X, extent)
    model.check_uncertain("sample_y")
    rng = checks.check_random_state(random_state)
    _, theta, f, rows = row_draws(model, checks.check_int("n_samples", n_samples), X, rng)
    return model.fit.observation.decoded(observations(model, f, rows, theta, rng, extents))


# The share of entries in unseen rows from which on a score says little of the seen ones.
MANY_UNSEEN = 0.5


def scored_entries(
    model: FittedModel, X: Any, y: Any, sample_weight: Any, modes: Any = None, value: Any = UNSAID, **extent: Any
) -> tuple[Any, np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Entries to score, their values, which a tensor and a table with one more column hold, weights and extents."""
    if isinstance(sample_weight, str):
        X, sample_weight = column_apart(X, "sample_weight", sample_weight)
    if isinstance(X, SparseTensor) and y is not None:
        checks.fail_value("y must be left out when X is a SparseTensor, which holds its own values.")
    X, y, extents = judged_entries(model, X, y, modes, value, extent)
    if y is None:
        checks.fail_value("y must hold one value per row of X; got None (or pass a SparseTensor as X).")
    _, unseen = placed_rows(coords_to_predict(X, model.fit.labels), model.fit.posterior)
    if unseen.size and unseen.mean() > MANY_UNSEEN:
        checks.warn_user(
            f"{int(unseen.sum())} of {unseen.size} scored entries touch rows without training entries; where they are "
            "a fold of a cross-validation, shuffle it: cv=KFold(5, shuffle=True), or tensor.kfold(5).",
            UserWarning,
        )
    return X, np.asarray(checks.check_unmasked(y, "y")), checks.check_unmasked(sample_weight, "sample_weight"), extents


# How odd observations are under what the model predicts of them.

SCORES = ("value", "mean", "sd", "surprise", "lower_tail", "upper_tail", "unseen")


def anomaly_score(model: FittedModel, X: Any, y: Any, modes: Any, value: Any, extent: dict[str, Any]) -> pd.DataFrame:
    """How odd each observation is; in a stream, of a batch before it is learned."""
    fit, likelihood = model.fit, model.likelihood_of_new
    X, y, extents = judged_entries(model, X, y, modes, value, extent, empty=True)
    if y is None:
        checks.fail_value("anomaly_score needs what was observed: give y, or the column that holds it as value=.")
    coords = coords_to_predict(X, fit.labels)
    values = likelihood.check_y(checks.check_values(fit.observation.coded(y), len(coords), name="y"))
    found = placed(model, X)
    rows, unseen = placed_rows(found.coords, fit.posterior, fit.described)
    if model.spec.unknown == "error":
        model.packed(found.coords)  # which refuses them
    if isinstance(X, pd.DataFrame):
        frame = X.reset_index(drop=True)
    elif isinstance(X, SparseTensor):
        frame = X.to_pandas(value=SCORES[0]).drop(columns=SCORES[0]).set_axis(names_of(X.labels), axis=1)
    else:
        frame = pd.DataFrame(coords, columns=names_of(fit.labels))
    shown = np.asarray(fit.observation.coded(y), dtype=np.float64)
    return with_scores(frame, (shown, *scored(likelihood, found.belief, found.rows(rows), values, extents), unseen))


def scored(
    likelihood: Likelihood, belief: Components, rows: np.ndarray, values: np.ndarray, extents: np.ndarray | None = None
) -> tuple[np.ndarray, ...]:
    """Mean, sd, surprise and both tails of values (n,) of the likelihood's coding, at packed rows (n, K)."""
    mean, variance = observed_moments(likelihood, belief, rows, extent=extents)
    surprise = -observed_logpdf(likelihood, belief, rows, values, extent=extents) - likelihood.log_slopes(values)
    return mean, np.sqrt(variance), surprise, *observed_tails(likelihood, belief, rows, values, extents)


def with_scores(frame: pd.DataFrame, numbers: tuple[np.ndarray, ...]) -> pd.DataFrame:
    """A frame of modes with the columns of SCORES."""
    names = list(frame.columns)
    for name, numbers_of in zip(SCORES, numbers, strict=True):
        frame[f"predicted_{name}" if name in names else name] = numbers_of
    return frame
