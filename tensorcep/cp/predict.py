"""From what a method returns and coordinates to moments, draws and predictions of observations.

A belief about the rows is Gaussian moments (the deterministic methods; a point estimate has no variance), several
equally likely ones (a mixture of posteriors), or a set of equally likely draws (the samplers). What is predicted is the
mean over the components of a mixture: a component with the latent value's mean and variance for each set of moments, or
one without variance for each draw.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from tensorcep.core.belief import Draws, Mixture, ModePrior, PointEstimate, Posterior, Result, first_member
from tensorcep.core.packing import offsets, pack, unpack
from tensorcep.cp.model import latent_moments, latent_of_draws
from tensorcep.kernels.rows import row_moments
from tensorcep.likelihoods.gaussian import mixture_quantile
from tensorcep.likelihoods.record import Likelihood

CHUNK = 1 << 16
# A quantile over draws takes this many evenly spaced quantiles of every component, and at least so many in all.
LEVELS_PER_DRAW = 16
LEVELS = 512
WITHOUT_NOISE = np.array(np.inf)


class RowMoments(NamedTuple):
    """Moments of every packed row: mean (n_rows, R) and packed covariance (n_rows, P)."""

    mean: np.ndarray
    cov: np.ndarray


class RowDraws(NamedTuple):
    """Equally likely values of every packed row, (S, n_rows, R)."""

    values: np.ndarray


class RowMixture(NamedTuple):
    """Equally likely moments of every packed row: mean (C, n_rows, R) and packed covariance (C, n_rows, P)."""

    mean: np.ndarray
    cov: np.ndarray


Belief = RowMoments | RowMixture | RowDraws


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
    """Mean and covariance of every factor row, whatever the method returned; of a mixture, its first member's.

    Components have neither order nor sign, so rows of different members do not average.
    """
    result = first_member(result)
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
        if result.unknown is None:
            rows = draw_rows(unseen, len(values), np.random.default_rng(0))
        else:
            rows = result.unknown.reshape(-1, *result.unknown.shape[2:])
        return RowDraws(np.concatenate([values, rows], axis=1))
    if isinstance(result, Mixture):
        every = [moments_of_rows(member) for member in result.members]
        prior = [unseen if m.mode_prior is None else _moments_of_prior(m.mode_prior) for m in result.members]
        joined = [np.concatenate(pair) for e, p in zip(every, prior, strict=True) for pair in zip(e, p, strict=True)]
        return RowMixture(np.stack(joined[::2]), np.stack(joined[1::2]))
    return RowMoments(np.concatenate([known.mean, unseen.mean]), np.concatenate([known.cov, unseen.cov]))


def _moments_of_prior(prior: ModePrior) -> RowMoments:
    return RowMoments(prior.mean, pack(np.linalg.inv(prior.precision)))


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
    if isinstance(result, Mixture):
        every = [theta_of(member, likelihood) for member in result.members]
        return every[0]._replace(values=np.concatenate([theta.values for theta in every]))
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
    if isinstance(belief, RowMixture):
        each = [components(RowMoments(mean, cov), rows) for mean, cov in zip(belief.mean, belief.cov, strict=True)]
        return np.concatenate([mean for mean, _ in each]), np.concatenate([variance for _, variance in each])
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
        mean, variance = components(belief, rows[part])
        draws = isinstance(belief, RowDraws)
        out[part] = np.quantile(mean, q, axis=0) if draws else mixture_quantile(q, mean, variance, WITHOUT_NOISE)
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

    Over several components it is the quantile of the mixture, or of the pool of their evenly spaced quantiles.
    """
    out = np.empty(len(rows))
    levels = _levels(belief)
    for part in _parts(belief, rows, len(levels)):
        m, v, t = _mixture(belief, rows[part], theta)
        if isinstance(belief, RowMoments):
            out[part] = likelihood.quantile(q, m[0], v[0], t[0])
            continue
        if likelihood.mixture_quantile is not None:
            out[part] = likelihood.mixture_quantile(q, m, v, t)
            continue
        pool = [_each(lambda *a, u=u: (likelihood.quantile(u, *a),), m, v, t)[0] for u in levels]
        out[part] = np.quantile(np.concatenate(pool), q, axis=0)
    return out


def _size(belief: Belief) -> int:
    """Number of components."""
    if isinstance(belief, RowDraws):
        return len(belief.values)
    return 1 if isinstance(belief, RowMoments) else len(belief.mean)


def _levels(belief: Belief) -> np.ndarray:
    """Evenly spaced levels of the quantiles that each component adds to a pool."""
    n = max(LEVELS_PER_DRAW, -(-LEVELS // _size(belief)))
    return (np.arange(n) + 0.5) / n


def _mixture(belief: Belief, rows: np.ndarray, theta: EntryTheta) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    m, v = components(belief, rows)
    return m, v, np.broadcast_to(theta.of(rows), m.shape)


def _each(function: Callable[..., tuple[np.ndarray, ...]], *arrays: np.ndarray) -> list[np.ndarray]:
    """Apply a function of flat arrays to (C, n) arrays."""
    shape = arrays[0].shape
    return [part.reshape(shape) for part in function(*(np.ascontiguousarray(a).ravel() for a in arrays))]


def _parts(belief: Belief, rows: np.ndarray, width: int = 1) -> Iterator[slice]:
    """Slices of the entries whose components fit in memory."""
    size = len(rows) if isinstance(belief, RowMoments) else max(1, 16 * CHUNK // (width * _size(belief)))
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
    if isinstance(belief, RowMixture):
        return _draw_members(result, belief, likelihood, n_draws, rng)
    values = draw_rows(belief, n_draws, rng)
    if isinstance(result, Posterior) and result.noise is not None:
        theta = theta._replace(values=rng.gamma(result.noise.a, 1.0 / result.noise.b, (n_draws, 1)))
    elif isinstance(result, Posterior) and result.dispersion is not None:
        _, a, b = result.dispersion
        theta = theta._replace(values=rng.gamma(a, 1.0 / b, (n_draws, len(a))))
    return values, theta


def _draw_members(
    result: Result, belief: RowMixture, likelihood: Likelihood, n_draws: int, rng: np.random.Generator
) -> tuple[np.ndarray, EntryTheta]:
    """As `draw`, each draw from a member chosen at random."""
    which = rng.integers(len(belief.mean), size=n_draws)
    theta = theta_of(result, likelihood)
    values = np.empty((n_draws, *belief.mean.shape[1:]))
    parameter = np.empty((n_draws, theta.values.shape[1]))
    for c, member in enumerate(result.members if isinstance(result, Mixture) else ()):
        mine = which == c
        moments = RowMoments(belief.mean[c], belief.cov[c])
        values[mine], found = draw(member, moments, likelihood, int(mine.sum()), rng)
        parameter[mine] = found.values
    return values, theta._replace(values=parameter)


def draw_latent(draws: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The latent value at packed rows (n, K) in each draw of `draw_rows`: (n_draws, n)."""
    out = np.empty((len(draws), len(rows)))
    latent_of_draws(draws, np.ascontiguousarray(rows), out)
    return out
