"""From the components of a belief and coordinates to moments, draws and predictions of observations.

What is predicted is the mean over the components: each has the latent value's mean and variance, a point no variance.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import logsumexp

from tensorcep.core.components import Components, EntryTheta, draw_rows
from tensorcep.cp.model import latent_moments, latent_of_draws
from tensorcep.likelihoods.gaussian import mixture_quantile
from tensorcep.likelihoods.record import Likelihood

CHUNK = 1 << 16
# A quantile over components takes this many evenly spaced quantiles of each, and at least so many in all.
LEVELS_PER_DRAW = 16
LEVELS = 512
WITHOUT_NOISE = np.array(np.inf)


def latent_components(belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (C, n) of the latent value at packed rows (n, K), in every component.

    Gaussian rows count as independent; draws keep the dependence that the sampler found.
    """
    if belief.cov is None:
        f = draw_latent(belief.mean, rows)
        return f, np.zeros_like(f)
    rows = np.ascontiguousarray(rows)
    f, v = np.empty((belief.size, len(rows))), np.empty((belief.size, len(rows)))
    for c in range(belief.size):
        latent_moments(rows, belief.mean[c], belief.cov[c], f[c], v[c])
    return f, v


def draw_latent(draws: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The latent value (n_draws, n) at packed rows (n, K) in draws (n_draws, n_rows, R) of all rows."""
    out = np.empty((len(draws), len(rows)))
    if draws.dtype == np.float64:
        latent_of_draws(draws, np.ascontiguousarray(rows), out)
        return out
    used, index = np.unique(rows, return_inverse=True)
    index = index.reshape(rows.shape)
    for s in range(len(draws)):
        latent_of_draws(draws[s : s + 1, used].astype(np.float64), index, out[s : s + 1])
    return out


def latent(belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of the latent value at packed rows (n, K)."""
    f, v = np.empty(len(rows)), np.empty(len(rows))
    for part in _parts(belief, rows):
        f[part], v[part] = _pooled(*latent_components(belief, rows[part]))
    return f, v


def latent_quantile(belief: Components, rows: np.ndarray, q: float, standard_quantile: float) -> np.ndarray:
    """The q-quantile (n,) of the latent value; `standard_quantile` is that of N(0, 1)."""
    out = np.empty(len(rows))
    for part in _parts(belief, rows):
        mean, variance = latent_components(belief, rows[part])
        if belief.size == 1:
            out[part] = mean[0] + standard_quantile * np.sqrt(variance[0])
        elif belief.cov is None:
            out[part] = np.quantile(mean, q, axis=0)
        else:
            out[part] = mixture_quantile(q, mean, variance, WITHOUT_NOISE)
    return out


def theta_of(belief: Components, likelihood: Likelihood) -> EntryTheta:
    """The likelihood's parameter: what was learned of it, or the one that is given."""
    return EntryTheta(np.array([[likelihood.default_theta]])) if belief.theta is None else belief.theta


def observed_moments(likelihood: Likelihood, belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of a new observation at packed rows (n, K)."""
    mean, variance = np.empty(len(rows)), np.empty(len(rows))
    for part in _parts(belief, rows):
        mean[part], variance[part] = _pooled(*_each(likelihood.predict, *_given(likelihood, belief, rows[part])))
    return mean, variance


def observed_logpdf(likelihood: Likelihood, belief: Components, rows: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Log predictive density or mass (n,) of observations y at packed rows (n, K)."""
    out = np.empty(len(rows))
    for part in _parts(belief, rows):
        m, v, t = _given(likelihood, belief, rows[part])
        (each,) = _each(lambda *a: (likelihood.logpdf(*a),), np.broadcast_to(y[part], m.shape), m, v, t)
        out[part] = logsumexp(each, axis=0) - np.log(len(each))
    return out


def observed_tails(
    likelihood: Likelihood, belief: Components, rows: np.ndarray, y: np.ndarray
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
    for part in _parts(belief, rows):
        m, v, t = _given(likelihood, belief, rows[part])
        each = _each(likelihood.tails, np.broadcast_to(y[part], m.shape), m, v, t)
        lower[part], upper[part] = (side.mean(axis=0) for side in each)
    return lower, upper


def observed_quantile(likelihood: Likelihood, belief: Components, rows: np.ndarray, q: float) -> np.ndarray:
    """The q-quantile (n,) of a new observation at packed rows (n, K).

    Over several components it is the quantile of the mixture, or of the pool of their evenly spaced quantiles.
    """
    out = np.empty(len(rows))
    levels = _levels(belief)
    for part in _parts(belief, rows, len(levels)):
        m, v, t = _given(likelihood, belief, rows[part])
        if belief.size == 1:
            out[part] = likelihood.quantile(q, m[0], v[0], t[0])
        elif likelihood.mixture_quantile is not None:
            out[part] = likelihood.mixture_quantile(q, m, v, t)
        else:
            pool = [_each(lambda *a, u=u: (likelihood.quantile(u, *a),), m, v, t)[0] for u in levels]
            out[part] = np.quantile(np.concatenate(pool), q, axis=0)
    return out


def _levels(belief: Components) -> np.ndarray:
    """Evenly spaced levels of the quantiles that each component adds to a pool; for one component there is no pool."""
    n = 1 if belief.size == 1 else max(LEVELS_PER_DRAW, -(-LEVELS // belief.size))
    return (np.arange(n) + 0.5) / n


def _given(likelihood: Likelihood, belief: Components, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean and variance of the latent value and the likelihood's parameter, (C, n) each."""
    m, v = latent_components(belief, rows)
    return m, v, np.broadcast_to(theta_of(belief, likelihood).of(rows), m.shape)


def _pooled(mean: np.ndarray, variance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance (n,) of a mixture of components with means and variances (C, n)."""
    return mean.mean(axis=0), variance.mean(axis=0) + mean.var(axis=0)


def _each(function: Callable[..., tuple[np.ndarray, ...]], *arrays: np.ndarray) -> list[np.ndarray]:
    """Apply a function of flat arrays to (C, n) arrays."""
    shape = arrays[0].shape
    return [part.reshape(shape) for part in function(*(np.ascontiguousarray(a).ravel() for a in arrays))]


def _parts(belief: Components, rows: np.ndarray, width: int = 1) -> Iterator[slice]:
    """Slices of the entries whose components fit in memory."""
    size = max(1, 16 * CHUNK // (width * belief.size))
    for a in range(0, len(rows), size):
        yield slice(a, a + size)


def draw(
    belief: Components, likelihood: Likelihood, n_draws: int | None, rng: np.random.Generator
) -> tuple[np.ndarray, EntryTheta]:
    """Draws of every row of the belief, (n_draws, n_rows, R), and of the likelihood's parameter.

    A sampler's draws are taken as they are, without repetition where there are enough of them; n_draws=None takes them
    all, in their order.
    """
    theta, C = theta_of(belief, likelihood), belief.size
    is_precision = likelihood.parameter is not None and likelihood.parameter.is_precision
    if belief.cov is None:
        which = np.arange(C) if n_draws is None else rng.choice(C, n_draws, replace=n_draws > C)
        return belief.mean[which], theta._replace(values=theta.draws(which, rng))
    if n_draws is None:
        raise TypeError("n_draws must be an integer for a posterior in moments; got None.")
    if C == 1:
        values = draw_rows(belief.mean[0], belief.cov[0], n_draws, rng)
        which = np.zeros(n_draws, dtype=int)
        return values, theta.drawn(theta.draws(which, rng), which, is_precision)
    which = rng.integers(C, size=n_draws)
    values = np.empty((n_draws, *belief.mean.shape[1:]))
    parameter = np.empty((n_draws, theta.values.shape[1]))
    for c in range(C):
        own = np.flatnonzero(which == c)
        values[own] = draw_rows(belief.mean[c], belief.cov[c], len(own), rng)
        parameter[own] = theta.draws(which[own], rng)
    return values, theta.drawn(parameter, which, is_precision)


def draw_apart(
    belief: Components,
    likelihood: Likelihood,
    origin: np.ndarray,
    n_draws: int | None,
    rng: np.random.Generator,
    *,
    n_known: int,
) -> tuple[np.ndarray, EntryTheta]:
    """As `draw`, of the belief's rows `origin`: the known ones, and then unknown ones, which are independent."""
    if belief.cov is not None:
        belief = belief._replace(mean=belief.mean[:, origin], cov=belief.cov[:, origin])
        return draw(belief, likelihood, n_draws, rng)
    values, theta = draw(belief, likelihood, n_draws, rng)
    values = values[:, origin]
    for new in range(n_known, len(origin)):
        values[:, new] = belief.mean[rng.integers(0, belief.size, len(values)), origin[new]]
    return values, theta
