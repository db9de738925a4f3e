"""From what a method returns and coordinates to moments, draws and predictions of observations.

A belief about the rows is either Gaussian moments (the deterministic methods; a point estimate has no variance) or a
set of equally likely draws (the samplers). What is predicted is the mean over the components of a mixture: one
component with the latent value's mean and variance, or one component without variance per draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from tensorcep.likelihoods._record import Likelihood
from tensorcep.models.cp import latent_moments, latent_of_draws, row_moments
from tensorcep.posterior import Draws, PointEstimate, Posterior, Result, offsets, pack, unpack

CHUNK = 1 << 16
# A quantile over draws takes this many evenly spaced quantiles of every component.
LEVELS_PER_DRAW = 16


class RowMoments(NamedTuple):
    """Moments of every packed row: mean (n_rows, R) and packed covariance (n_rows, P)."""

    mean: np.ndarray
    cov: np.ndarray


class RowDraws(NamedTuple):
    """Equally likely values of every packed row, (S, n_rows, R)."""

    values: np.ndarray


Belief = RowMoments | RowDraws


class EntryTheta(NamedTuple):
    """The likelihood's parameter in each of C components: values (C, m), m = 1 or one per row of a mode.

    `first` is the first packed row of that mode. A row that the model does not know gets the mean over the mode.
    """

    values: np.ndarray
    mode: int | None = None
    first: int = 0

    def of(self, rows: np.ndarray) -> np.ndarray:
        """The parameter of the entries at packed rows (n, K): (C, n)."""
        if self.mode is None:
            return np.broadcast_to(self.values, (len(self.values), len(rows)))
        m = self.values.shape[1]
        extended = np.concatenate([self.values, self.values.mean(axis=1, keepdims=True)], axis=1)
        index = rows[:, self.mode] - self.first
        return extended[:, np.where((index >= 0) & (index < m), index, m)]


def moments_of_rows(posterior: Posterior) -> RowMoments:
    """Mean and covariance of every factor row.

    Raises
    ------
    FloatingPointError
        If the precision of a row is not positive definite (a damaged posterior; the methods guard against it).
    """
    n, R = posterior.eta.shape
    mean, cov, good = np.empty((n, R)), np.empty_like(posterior.Lam), np.empty(n)
    if n:
        row_moments(0, n, posterior.Lam, posterior.eta, mean, cov, good)
    if not good.all():
        bad = int(np.argmin(good))
        raise FloatingPointError(f"the posterior precision of packed row {bad} is not positive definite; fit again.")
    return RowMoments(mean, cov)


def known_moments(result: Result) -> RowMoments:
    """Mean and covariance of every factor row, whatever the method returned."""
    if isinstance(result, Posterior):
        return moments_of_rows(result)
    if isinstance(result, PointEstimate):
        return RowMoments(result.rows, np.zeros((len(result.rows), result.rank * (result.rank + 1) // 2)))
    values = pooled(result)
    mean = values.mean(axis=0)
    centred = np.ascontiguousarray((values - mean).transpose(1, 2, 0))
    return RowMoments(mean, pack(centred @ centred.transpose(0, 2, 1) / max(1, len(values) - 1)))


def belief_of(result: Result, known: RowMoments, unseen: RowMoments) -> Belief:
    """The belief about every row, followed by one row per mode (`unseen`) for rows that the model does not know."""
    if isinstance(result, Draws):
        values = pooled(result)
        return RowDraws(np.concatenate([values, draw_rows(unseen, len(values), np.random.default_rng(0))], axis=1))
    return RowMoments(np.concatenate([known.mean, unseen.mean]), np.concatenate([known.cov, unseen.cov]))


def pooled(result: Draws) -> np.ndarray:
    """The draws of all chains, (S, n_rows, R)."""
    return result.rows.reshape(-1, *result.rows.shape[2:])


def theta_of(result: Result, likelihood: Likelihood) -> EntryTheta:
    """The likelihood's parameter: an estimate, or one per draw."""
    if isinstance(result, Draws) and result.theta is not None:
        first = 0 if result.theta_mode is None else int(offsets(result.shape)[result.theta_mode])
        return EntryTheta(result.theta.reshape(-1, result.theta.shape[-1]), result.theta_mode, first)
    if isinstance(result, Posterior) and result.noise is not None:
        return EntryTheta(np.array([[1.0 / result.noise.variance]]))
    if isinstance(result, Posterior) and result.dispersion is not None:
        mode, a, b = result.dispersion
        return EntryTheta((a / b)[None], mode, 0 if mode is None else int(offsets(result.shape)[mode]))
    if isinstance(result, PointEstimate) and result.theta is not None:
        return EntryTheta(np.array([[result.theta]]))
    return EntryTheta(np.array([[likelihood.default_theta]]))


def per_mode(moments: RowMoments, shape: tuple[int, ...]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Means (n_k, R) and covariances (n_k, R, R) of each mode."""
    first = offsets(shape)
    R = moments.mean.shape[1]
    means = [moments.mean[a:b] for a, b in itertools.pairwise(first)]
    covs = [unpack(moments.cov[a:b], R) for a, b in itertools.pairwise(first)]
    return means, covs


def components(belief: Belief, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (C, n) of the latent value at packed rows (n, K), in every component of the belief."""
    if isinstance(belief, RowMoments):
        f, v = np.empty((1, len(rows))), np.empty((1, len(rows)))
        latent_moments(np.ascontiguousarray(rows), belief.mean, belief.cov, f[0], v[0])
        return f, v
    f = draw_latent(belief.values, rows)
    return f, np.zeros_like(f)


def latent(belief: Belief, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of the latent value at packed rows (n, K).

    Gaussian rows count as independent; draws keep the dependence that the sampler found.
    """
    f, v = np.empty(len(rows)), np.empty(len(rows))
    for part in _parts(belief, rows):
        mean, variance = components(belief, rows[part])
        f[part], v[part] = mean.mean(axis=0), variance.mean(axis=0) + mean.var(axis=0)
    return f, v


def latent_quantile(belief: Belief, rows: np.ndarray, q: float, standard_quantile: float) -> np.ndarray:
    """The q-quantile (n,) of the latent value; `standard_quantile` is that of N(0, 1)."""
    if isinstance(belief, RowMoments):
        mean, variance = latent(belief, rows)
        return mean + standard_quantile * np.sqrt(variance)
    out = np.empty(len(rows))
    for part in _parts(belief, rows):
        out[part] = np.quantile(components(belief, rows[part])[0], q, axis=0)
    return out


def observed_moments(
    likelihood: Likelihood, belief: Belief, rows: np.ndarray, theta: EntryTheta
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of a new observation at packed rows (n, K)."""
    mean, variance = np.empty(len(rows)), np.empty(len(rows))
    for part in _parts(belief, rows):
        m, v = _each(likelihood.predict, *_mixture(belief, rows[part], theta))
        mean[part], variance[part] = m.mean(axis=0), v.mean(axis=0) + m.var(axis=0)
    return mean, variance


def observed_logpdf(
    likelihood: Likelihood, belief: Belief, rows: np.ndarray, theta: EntryTheta, y: np.ndarray
) -> np.ndarray:
    """Log predictive density or mass (n,) of observations y at packed rows (n, K)."""
    out = np.empty(len(rows))
    for part in _parts(belief, rows):
        m, v, t = _mixture(belief, rows[part], theta)
        (each,) = _each(lambda *a: (likelihood.logpdf(*a),), np.broadcast_to(y[part], m.shape), m, v, t)
        out[part] = logsumexp(each, axis=0) - np.log(len(each))
    return out


def observed_quantile(
    likelihood: Likelihood, belief: Belief, rows: np.ndarray, theta: EntryTheta, q: float
) -> np.ndarray:
    """The q-quantile (n,) of a new observation at packed rows (n, K).

    Over draws it is the quantile of the mixture, or of the pool of evenly spaced quantiles of the components.
    """
    out = np.empty(len(rows))
    for part in _parts(belief, rows, LEVELS_PER_DRAW if isinstance(belief, RowDraws) else 1):
        m, v, t = _mixture(belief, rows[part], theta)
        if isinstance(belief, RowMoments):
            out[part] = likelihood.quantile(q, m[0], v[0], t[0])
            continue
        if likelihood.mixture_quantile is not None:
            out[part] = likelihood.mixture_quantile(q, m, v, t)
            continue
        levels = (np.arange(LEVELS_PER_DRAW) + 0.5) / LEVELS_PER_DRAW
        pool = [_each(lambda *a, u=u: (likelihood.quantile(u, *a),), m, v, t)[0] for u in levels]
        out[part] = np.quantile(np.concatenate(pool), q, axis=0)
    return out


def _mixture(belief: Belief, rows: np.ndarray, theta: EntryTheta) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, v = components(belief, rows)
    return m, v, np.broadcast_to(theta.of(rows), m.shape)


def _each(function: Callable[..., tuple[np.ndarray, ...]], *arrays: np.ndarray) -> list[np.ndarray]:
    """Apply a function of flat arrays to (C, n) arrays."""
    shape = arrays[0].shape
    return [part.reshape(shape) for part in function(*(np.ascontiguousarray(a).ravel() for a in arrays))]


def _parts(belief: Belief, rows: np.ndarray, width: int = 1) -> Iterator[slice]:
    """Slices of the entries whose components fit in memory."""
    size = len(rows) if isinstance(belief, RowMoments) else max(1, 16 * CHUNK // (width * len(belief.values)))
    for a in range(0, len(rows), max(1, size)):
        yield slice(a, a + size)


def draw_rows(moments: RowMoments, n_draws: int, rng: np.random.Generator) -> np.ndarray:
    """Draws of every row from Gaussian moments, (n_draws, n_rows, R)."""
    R = moments.mean.shape[1]
    root = np.linalg.cholesky(unpack(moments.cov, R))
    noise = rng.standard_normal((n_draws, *moments.mean.shape))
    return moments.mean + np.einsum("nij,dnj->dni", root, noise)


def draw(
    result: Result, belief: Belief, likelihood: Likelihood, n_draws: int | None, rng: np.random.Generator
) -> tuple[np.ndarray, EntryTheta]:
    """Draws of every row of the belief, (n_draws, n_rows, R), and of the likelihood's parameter.

    A sampler's draws are taken as they are, without repetition where there are enough of them; n_draws=None takes them
    all, in their order.
    """
    theta = theta_of(result, likelihood)
    if isinstance(belief, RowDraws):
        S = len(belief.values)
        which = np.arange(S) if n_draws is None else rng.choice(S, n_draws, replace=n_draws > S)
        return belief.values[which], theta._replace(values=theta.values[which % len(theta.values)])
    if n_draws is None:
        raise TypeError("n_draws must be an integer for a posterior in moments; got None.")
    values = draw_rows(belief, n_draws, rng)
    if isinstance(result, Posterior) and result.noise is not None:
        theta = theta._replace(values=rng.gamma(result.noise.a, 1.0 / result.noise.b, (n_draws, 1)))
    elif isinstance(result, Posterior) and result.dispersion is not None:
        _, a, b = result.dispersion
        theta = theta._replace(values=rng.gamma(a, 1.0 / b, (n_draws, len(a))))
    return values, theta


def draw_latent(draws: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The latent value at packed rows (n, K) in each draw of `draw_rows`: (n_draws, n)."""
    out = np.empty((len(draws), len(rows)))
    latent_of_draws(draws, np.ascontiguousarray(rows), out)
    return out
