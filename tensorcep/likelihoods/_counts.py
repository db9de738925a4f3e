"""Distribution function and quantiles of a Poisson count whose log rate is normal."""

from __future__ import annotations

import numpy as np
from scipy.special import gammaincc, ndtr, ndtri

from tensorcep.kernels.quadrature import DROP, REACH

CHUNK = 2048  # entries at a time, so that the table of nodes stays small
# Above this the count's own noise moves a quantile by less than 1 part in 1e7 and floats no longer hold every integer.
CONTINUOUS_FROM = 2.0**52


def _over_latent(k: np.ndarray, m: np.ndarray, s: np.ndarray) -> np.ndarray:
    u = np.linspace(-REACH, REACH, 64)
    weight = np.exp(-0.5 * u * u)
    with np.errstate(over="ignore"):
        below = gammaincc(k[:, None] + 1.0, np.exp(m[:, None] + s[:, None] * u))
    return below @ (weight / weight.sum())


def _over_rate(k: np.ndarray, m: np.ndarray, s: np.ndarray, n_nodes: int) -> np.ndarray:
    shape = k + 1.0
    q = DROP / shape
    low = -0.5 * (q + np.sqrt(q * (q + 8.0)))
    high = np.log1p(q + np.sqrt(2.0 * q))
    d = low[:, None] + (high - low)[:, None] * np.linspace(0.0, 1.0, n_nodes)
    weight = np.exp(-shape[:, None] * (np.expm1(d) - d))
    below = ndtr((np.log(shape)[:, None] + d - m[:, None]) / s[:, None])
    return np.einsum("nj,nj->n", weight, below) / weight.sum(axis=1)


def mixture_cdf(k: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return P(y <= k) for y ~ Poisson(e^f), f ~ N(m, v), each argument (n,), k >= 0 whole.

    P(y <= k | rate) = P(X > rate) with X ~ Gamma(k + 1): the mean is taken over f where f is the narrower of the two,
    and over log X, of the normal probability that f is below it, where log X is.
    """
    s = np.sqrt(v)
    result = np.empty_like(m)
    narrow = s * np.sqrt(k + 1.0) <= 1.0
    small = k < 8.0
    for rows, n_nodes in ((narrow, 0), (~narrow & small, 192), (~narrow & ~small, 64)):
        for part in np.array_split(np.flatnonzero(rows), 1 + rows.sum() // CHUNK):
            if n_nodes:
                result[part] = _over_rate(k[part], m[part], s[part], n_nodes)
            else:
                result[part] = _over_latent(k[part], m[part], s[part])
    return result


def _bracket(q: float, m: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return whole numbers low < high with P(y <= low) < q <= P(y <= high); -1 stands for no count at all."""
    z = ndtri(q)
    rate = np.exp(m + z * np.sqrt(v))
    guess = np.floor(rate + z * np.sqrt(rate) / (1.0 + np.sqrt(v * rate)))
    low, high = np.maximum(guess - 1.0, -1.0), np.maximum(guess, 0.0)
    width = np.maximum(1.0, np.floor(0.02 * guess))
    open_high = np.arange(m.size)
    while open_high.size:
        short = mixture_cdf(high[open_high], m[open_high], v[open_high]) < q
        open_high = open_high[short]
        low[open_high] = high[open_high]
        high[open_high] += width[open_high]
        width[open_high] *= 2.0
    width = np.maximum(1.0, np.floor(0.02 * guess))
    open_low = np.flatnonzero(low >= 0.0)
    while open_low.size:
        open_low = open_low[mixture_cdf(low[open_low], m[open_low], v[open_low]) >= q]
        high[open_low] = low[open_low]
        low[open_low] = np.maximum(low[open_low] - width[open_low], -1.0)
        width[open_low] *= 2.0
        open_low = open_low[low[open_low] >= 0.0]
    return low, high


def mixture_quantile(q: float, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the smallest whole k with P(y <= k) >= q; inf where it exceeds the range of float64."""
    with np.errstate(over="ignore"):
        result = np.exp(m + ndtri(q) * np.sqrt(v))
        upper = np.exp(m + max(ndtri(q), 0.0) * np.sqrt(v))
    rows = np.flatnonzero(upper < CONTINUOUS_FROM)
    low, high = _bracket(q, m[rows], v[rows])
    active = np.flatnonzero(high - low > 1.0)
    while active.size:
        middle = np.floor(0.5 * (low[active] + high[active]))
        enough = mixture_cdf(middle, m[rows][active], v[rows][active]) >= q
        high[active] = np.where(enough, middle, high[active])
        low[active] = np.where(enough, low[active], middle)
        active = active[high[active] - low[active] > 1.0]
    result[rows] = high
    return np.where(np.isnan(result), result, np.floor(result))
