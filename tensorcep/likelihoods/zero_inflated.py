"""Counts with structural zeros (`parameters.zero_inflation`): what is learned of them, and predictions of new ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from tensorcep.core.checks import check_fraction
from tensorcep.likelihoods.arrays import aligned
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.counts import CountCDF, dispersed_cdf, mixture_cdf_of, mixture_quantile
from tensorcep.likelihoods.parameters.zero_inflation import ZeroInflation, with_zeros


class Rates(NamedTuple):
    """Of counts of dispersion r with f ~ N(m, v): the distribution function, and about the moments of the log rate."""

    cdf: Callable[..., CountCDF]
    log_rate: Callable[..., tuple[np.ndarray, np.ndarray]]


RATES = {
    "poisson": Rates(lambda m, v, r: mixture_cdf_of(m, v), lambda m, v, r: (m, v)),
    "negbinomial": Rates(dispersed_cdf, lambda m, v, r: (m + np.log(r), v + 1.0 / r)),
}


def zero_inflated(counts: Likelihood, zeros: ZeroInflation) -> Likelihood:
    """Return the record of counts some of which are structural zeros.

    Its kernels are those of the other counts: methods that know of `zeros` weigh entries. The numbers that are learned
    of all entries together are the dispersion, of no meaning where it is given or there is none, and the share.

    Parameters
    ----------
    counts : Likelihood
        "poisson" or "negbinomial".
    zeros : ZeroInflation
    """
    learned = (*counts.parameters, replace(zeros, loglik=counts.loglik))
    return counts._replace(parameters=learned, by_component=lambda values: _record(counts, values))


def _record(counts: Likelihood, values: np.ndarray) -> Likelihood:
    """The record whose theta is the number of a line of (dispersion, share), (C, 2)."""
    dispersion = np.full(len(values), counts.default_theta) if counts.parameter is None else values[:, 0]
    share = values[:, -1]

    def parts_of(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        line = np.asarray(theta).astype(np.int64)
        return dispersion[line], share[line]

    def logpdf(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        y, m, v, theta = aligned(y, m, v, theta)
        r, p = parts_of(theta)
        return with_zeros(y, counts.logpdf(y, m, v, r), p)

    def loglik(y: np.ndarray, f: np.ndarray, theta: np.ndarray, value: np.ndarray, *unused: np.ndarray) -> None:
        r, p = parts_of(theta)
        counts.loglik(y, f, r, value, *unused)
        value[:] = with_zeros(y, value, p)

    def predict(m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        m, v, theta = aligned(m, v, theta)
        r, p = parts_of(theta)
        mean, variance = counts.predict(m, v, r)
        with np.errstate(over="ignore"):
            return (1.0 - p) * mean, (1.0 - p) * (variance + p * mean * mean)

    def tails(y: ArrayLike, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
        y, m, v, theta = aligned(y, m, v, theta)
        r, p = parts_of(theta)
        lower, upper = counts.tails(y, m, v, r)  # type: ignore[misc]
        return p + (1.0 - p) * lower, np.where(y > 0.0, (1.0 - p) * upper, 1.0)

    def quantile(q: float, m: ArrayLike, v: ArrayLike, theta: ArrayLike) -> np.ndarray:
        return quantile_of_mixture(q, *(part[None] for part in aligned(m, v, theta)))

    def quantile_of_mixture(q: float, m: np.ndarray, v: np.ndarray, theta: np.ndarray) -> np.ndarray:
        r, p = parts_of(theta)
        return _quantile(check_fraction("q", q), (m, v, r, p), RATES[counts.name])

    def sample(rng: np.random.Generator, f: ArrayLike, theta: ArrayLike) -> np.ndarray:
        f, theta = aligned(f, theta)
        r, p = parts_of(theta)
        return np.where(rng.random(f.shape) < p, 0.0, counts.sample(rng, f, r))

    return counts._replace(
        tilted=None,
        loglik=loglik,
        predict=predict,
        quantile=quantile,
        logpdf=logpdf,
        sample=sample,
        mixture_quantile=quantile_of_mixture,
        tails=tails,
        of_points=None,
        third=None,
        averaged=None,
        rough=None,
        normal=None,
        pg=None,
        matched=None,
        by_component=None,
    )


def _quantile(q: float, given: tuple[np.ndarray, ...], of: Rates) -> np.ndarray:
    """The q-quantile (n,) of equally likely components, whose m, v, r and shares are (C, n).

    It is the quantile (q - p) / (1 - p) of what is left when the mean share p of the zeros is taken away.
    """
    m, v, r, share = (np.array(part, dtype=np.float64) for part in given)
    cdfs = [of.cdf(*component) for component in zip(m, v, r, strict=True)]
    p = share.mean(axis=0)
    result = np.zeros(m.shape[1])
    rate, own_spread = of.log_rate(m, v, r)
    centre, spread = rate.mean(axis=0), own_spread.mean(axis=0) + rate.var(axis=0)
    for own in np.unique(p):
        if own >= q:
            continue
        rows = np.flatnonzero(p == own)

        def cdf(k: np.ndarray, some: np.ndarray, rows: np.ndarray = rows, own: float = own) -> np.ndarray:
            at = rows[some]
            each = [s[at] + (1.0 - s[at]) * one(k, at) for s, one in zip(share, cdfs, strict=True)]
            return np.asarray((np.mean(each, axis=0) - own) / (1.0 - own))

        result[rows] = mixture_quantile((q - own) / (1.0 - own), centre[rows], spread[rows], cdf)
    return result
