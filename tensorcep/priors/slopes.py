"""The linear map from features to prior means: its posterior given rows, and draws of it.

The rows U (n, D) of a mode have the prior N(mu + B'x_i, Lam^-1) with mu ~ N(centre, (m Lam)^-1), B matrix normal with
precisions strength (features) and Lam (columns), Lam Wishart, and strength ~ Gamma. Given the strength all of this is
conjugate, and with H = sum x x' - s s' / (m + n), s = sum x, once decomposed, cheap at any strength:

    B | Lam ~ N((H + strength)^-1 Y, (H + strength)^-1 x Lam^-1),   Y = sum x (u - centre)', less s times the mean,
    Lam     ~ Wishart(df + n, (square - Y' (H + strength)^-1 Y)^-1).

With many features systems are solved by conjugate gradients instead, and draws come from noise that is injected.

Source: Simm et al. 2017, "Macau: Scalable Bayesian factorization with high-dimensional side information using MCMC",
sec. 3. Where we differ: with few features (mu, Lam, B) are one draw, and the strength one with all three integrated
out, by a slice sampler of its log; so draws do not depend on B before, which would move slowly where B is small.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.mode_laws import Slopes
from tensorcep.priors.design import Design
from tensorcep.priors.learned import draw_root

# Up to so many features the matrix is decomposed, at the cost of their number to the third, once.
MOST_DIRECT = 2000
# Prior shape and rate of the strength, in units of the features' mean square length.
STRENGTH = (1e-3, 1e-3)
# Steps of the slice sampler, and how far from its unit the log of the strength may go.
STEPS, RANGE = 20, 30.0
# Conjugate gradients: the relative residual at which they end, and the most steps.
RESIDUAL, MOST_STEPS = 1e-6, 1000


class Ready(NamedTuple):
    """What is needed of the features of rows with entries, made once.

    Attributes
    ----------
    design : Design
        Of these rows.
    total : (F,) float64
        Their sum.
    rows : float
        Rows, and as how many the prior mean counts.
    values, vectors : (F,), (F, F) float64, or None
        Eigenvalues and eigenvectors of H; None where features are many.
    prior : tuple of float
        Shape and rate of the strength.
    """

    design: Design
    total: np.ndarray
    rows: float
    values: Any
    vectors: Any
    prior: tuple[float, float]


def ready(design: Design, prior_rows: float, strength: tuple[float, float] = STRENGTH) -> Ready:
    """Prepare the features of the rows with entries; the prior mean counts as `prior_rows` of them."""
    n = design.matrix.shape[0]
    total, count = design.transposed(np.ones((n, 1)))[:, 0], n + prior_rows
    values = vectors = None
    if design.n_features <= MOST_DIRECT:
        values, vectors = decomposed(design.gram(), total, count)
    return Ready(design, total, count, values, vectors, (strength[0], strength[1] / design.size))


def decomposed(gram: np.ndarray, total: np.ndarray, count: float) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of H."""
    values, vectors = np.linalg.eigh(gram - np.outer(total, total) / count)
    return np.maximum(values, 0.0), vectors


class Sums(NamedTuple):
    """Sums over the rows of a mode about the centre of their mean's prior, in the free columns.

    Attributes
    ----------
    total : (D,) float64
    square : (D, D) float64
        With mu integrated out, and the prior's scatter.
    cross : (F, D) float64
        Y; in the eigenvectors where there are some.
    df : float
        Degrees of freedom of Lam.
    """

    total: np.ndarray
    square: np.ndarray
    cross: np.ndarray
    df: float


def sums(have: Ready, apart: np.ndarray, scatter: np.ndarray, df: float) -> Sums:
    """The sums of rows (n, D) less the centre; `scatter` and `df` are the prior's, with the rows' covariances."""
    total = apart.sum(axis=0)
    square = scatter + apart.T @ apart - np.outer(total, total) / have.rows
    cross = have.design.transposed(apart) - np.outer(have.total, total) / have.rows
    return Sums(total, square, cross if have.vectors is None else have.vectors.T @ cross, df + len(apart))


def scatter_at(have: Ready, known: Sums, strength: float) -> np.ndarray:
    """The scatter of Lam given the strength."""
    found = known.square - known.cross.T @ (known.cross / (have.values + strength)[:, None])
    return np.asarray(0.5 * (found + found.T))


def leverage(have: Ready, rows: Design, strength: float) -> np.ndarray:
    """Variance of mu + B'x of rows given the others, in units of the rows' own covariance, (n,)."""
    apart = rows.times(have.vectors) - (have.total @ have.vectors) / have.rows
    return np.asarray(1.0 / have.rows + (apart**2 / (have.values + strength)).sum(axis=1))


def log_density(have: Ready, known: Sums, log_strength: float) -> float:
    """Log posterior density of the log of the strength, all else integrated out, but for a constant."""
    strength, (a, b) = np.exp(log_strength), have.prior
    sign, log_det = np.linalg.slogdet(scatter_at(have, known, strength))
    if sign <= 0.0:
        return -np.inf
    shares = 0.5 * known.cross.shape[1] * -np.log1p(have.values / strength).sum()
    return float(shares - 0.5 * known.df * log_det + a * log_strength - b * strength)


def draw(
    have: Ready, known: Sums, now: Slopes, precision: np.ndarray, apart: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, Slopes]:
    """Draw mu less its centre (D,), Lam (D, D), and B with its strength, given the rows less the centre (n, D).

    `now` and `precision` are B, its strength, and Lam as they are at present.
    """
    if have.values is not None:
        log_strength = _slice(have, known, float(np.log(now.strength)), rng)
        strength = float(np.exp(log_strength))
        root = draw_root(known.df, scatter_at(have, known, strength), rng)
        weight = (have.values + strength)[:, None]
        noise = np.linalg.solve(root.T, rng.standard_normal(known.cross.shape).T).T
        coef = have.vectors @ (known.cross / weight + noise / np.sqrt(weight))
    else:
        strength, root, coef = _draw_many(have, known, now, precision, apart, rng)
    mean = (known.total - have.total @ coef) / have.rows
    mean = mean + np.linalg.solve(root.T, rng.standard_normal(len(mean))) / np.sqrt(have.rows)
    return mean, root @ root.T, Slopes(coef, strength)


def _slice(have: Ready, known: Sums, at: float, rng: np.random.Generator) -> float:
    """The next value of a slice sampler of the log of the strength (Neal 2003, figs 3 and 5)."""
    unit = float(np.log(have.design.size))
    level = log_density(have, known, at) - rng.exponential()
    low = at - rng.random()
    high, left = low + 1.0, int(STEPS * rng.random())
    for _ in range(left):
        if low < unit - RANGE or log_density(have, known, low) <= level:
            break
        low -= 1.0
    for _ in range(STEPS - 1 - left):
        if high > unit + RANGE or log_density(have, known, high) <= level:
            break
        high += 1.0
    low, high = max(low, unit - RANGE), min(high, unit + RANGE)
    while high - low > 1e-9:
        new = low + rng.random() * (high - low)
        if log_density(have, known, new) > level:
            return new
        low, high = (new, high) if new < at else (low, new)
    return at


def _draw_many(
    have: Ready, known: Sums, now: Slopes, precision: np.ndarray, apart: np.ndarray, rng: np.random.Generator
) -> tuple[float, np.ndarray, np.ndarray]:
    """Draw the strength given B and Lam, Lam given B, and B by injected noise: Lam = root root'."""
    (a, b), (F, D), n = have.prior, now.coef.shape, len(apart)
    square = float(np.einsum("fd,de,fe->", now.coef, precision, now.coef))
    strength = float(rng.gamma(a + 0.5 * F * D) / (b + 0.5 * square))
    rest = apart - have.design.times(now.coef)
    total = rest.sum(axis=0)
    of_rows = apart.T @ apart - np.outer(known.total, known.total) / have.rows
    scatter = known.square - of_rows + rest.T @ rest - np.outer(total, total) / have.rows
    root = draw_root(known.df + F, scatter + strength * now.coef.T @ now.coef, rng)
    noise = rng.standard_normal((n + F, D))
    # the square root of I - 11' / count takes a share of the mean off
    share = (1.0 - np.sqrt(1.0 - n / have.rows)) / max(1, n)
    of_data = have.design.transposed(noise[:n] - share * noise[:n].sum(axis=0))
    injected = np.linalg.solve(root.T, (of_data + np.sqrt(strength) * noise[n:]).T).T
    return strength, root, solve(have, known.cross + injected, strength, now.coef)


def solve(have: Ready, right: np.ndarray, strength: float, start: np.ndarray) -> np.ndarray:
    """(H + strength)^-1 right by conjugate gradients, each of the columns by itself."""

    def times(x: np.ndarray) -> np.ndarray:
        product = have.design.transposed(have.design.times(x)) - np.outer(have.total, have.total @ x) / have.rows
        return product + strength * x

    x = start.copy()
    rest = right - times(x)
    step, square = rest.copy(), np.einsum("fd,fd->d", rest, rest)
    least = RESIDUAL**2 * np.einsum("fd,fd->d", right, right)
    for _ in range(MOST_STEPS):
        if (square <= least).all():
            break
        product = times(step)
        curve = np.einsum("fd,fd->d", step, product)
        length = np.divide(square, curve, out=np.zeros_like(square), where=curve > 0.0)
        x += length * step
        rest -= length * product
        new = np.einsum("fd,fd->d", rest, rest)
        step = rest + np.divide(new, square, out=np.zeros_like(new), where=square > 0.0) * step
        square = new
    return x
