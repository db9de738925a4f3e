"""What the tests of all likelihoods must know of each of them: a case per likelihood, made of scipy's laws.

A new likelihood has its case here, under its name, and its slow tilted moments in `oracles/tilted.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import integrate, stats
from scipy.special import expit, ndtr

# Likelihoods without a case, and the files that hold their tests.
TESTS_OF_THEIR_OWN = {
    "step": "test_step.py",  # has no slope
    "logit_mackay": "test_step.py",  # is an approximation
    "poisson_square": "test_poisson_square.py",  # is even in f
    "binomial": "test_binomial.py",  # its theta is a whole number of trials
}


class Case(NamedTuple):
    """A likelihood as scipy has it.

    Attributes
    ----------
    observed : callable
        ``observed(rng, n) -> (n,)``: observations of all kinds, coded as kernels take them.
    log_density : callable
        ``log_density(y, f, theta)``: of an observation so coded, exact to 12 digits also far out.
    moments : callable
        ``moments(f, theta) -> (mean, variance)`` of an observation as `sample` draws it.
    total : callable
        ``total(record, *at) -> float``: the sum or integral of ``exp(record.logpdf(y, *at))`` over all y.
    few : tuple of float
        Observations for means far from all that is likely.
    """

    observed: Callable[[np.random.Generator, int], np.ndarray]
    log_density: Callable[..., np.ndarray]
    moments: Callable[..., tuple[Any, Any]]
    total: Callable[..., float]
    few: tuple[float, float] = (-1.0, 1.0)


def real_values(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.normal(size=n)


def counts(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.integers(0, 12, n).astype(float)


def labels(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.choice([-1.0, 1.0], n)


def over_labels(record: Any, *at: float) -> float:
    return float(np.exp(record.logpdf(record.check_y([0, 1]), *at)).sum())


def over_counts(record: Any, *at: float) -> float:
    return float(np.exp(record.logpdf(np.arange(20_000.0), *at)).sum())


def between(low: float, high: float, *atoms: float) -> Callable[..., float]:
    """The integral of a density from low to high, and the masses at some points."""

    def total(record: Any, *at: float) -> float:
        inside = integrate.quad(lambda y: np.exp(record.logpdf(y, *at)[0]), low, high, limit=200)[0]
        return inside + sum(float(np.exp(record.logpdf(y, *at)[0])) for y in atoms)

    return total


def tobit_density(y: np.ndarray, f: np.ndarray, theta: float) -> np.ndarray:
    sd = theta**-0.5
    return np.where(y > 0, stats.norm.logpdf(y, f, sd), stats.norm.logcdf(0.0, f, sd))


def tobit_moments(f: float, theta: float) -> tuple[float, float]:
    above = stats.truncnorm(-f * np.sqrt(theta), np.inf, f, theta**-0.5)
    share = ndtr(f * np.sqrt(theta))
    first = share * above.mean()
    return first, share * above.moment(2) - first**2


def of_label(p: float) -> tuple[float, float]:
    return p, p * (1 - p)


CASES = {
    "gaussian": Case(
        observed=real_values,
        log_density=lambda y, f, theta: stats.norm.logpdf(y, f, theta**-0.5),
        moments=lambda f, theta: (f, 1 / theta),
        total=between(-12.0, 12.0),
    ),
    "tobit": Case(
        observed=lambda rng, n: np.maximum(real_values(rng, n), 0.0),
        log_density=tobit_density,
        moments=tobit_moments,
        total=between(1e-300, 12.0, 0.0),
    ),
    "probit": Case(
        observed=labels,
        log_density=lambda y, f, theta: stats.norm.logcdf(y * f),
        moments=lambda f, theta: of_label(ndtr(f)),
        total=over_labels,
    ),
    "logit": Case(
        observed=labels,
        log_density=lambda y, f, theta: stats.logistic.logcdf(y * f),
        moments=lambda f, theta: of_label(expit(f)),
        total=over_labels,
    ),
    "poisson": Case(
        observed=counts,
        log_density=lambda y, f, theta: stats.poisson.logpmf(y, np.exp(f)),
        moments=lambda f, theta: (np.exp(f), np.exp(f)),
        total=over_counts,
        few=(0.0, 3.0),
    ),
    "negbinomial": Case(
        observed=counts,
        log_density=lambda y, f, theta: stats.nbinom.logpmf(y, theta, expit(-f)),
        moments=lambda f, theta: (theta * np.exp(f), theta * np.exp(f) * (1 + np.exp(f))),
        total=over_counts,
        few=(0.0, 3.0),
    ),
}
