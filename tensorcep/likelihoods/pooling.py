"""The common law of dispersions that rows of a mode have one each: r = r0 lambda, lambda ~ Gamma(alpha, alpha).

Entries add l (tables of a Chinese restaurant) to the shape and s (softpluses) to the rate of the law of their r. With
lambda integrated out they have the density of `tensorcep.likelihoods.uneven`, in which n / 2 is l, S / 2 is s and tau
is r0: what learns the noise of rows learns their dispersions. Rows of few entries shrink to r0, and one without any has
the common law.

Source: Zhou and Carin (2015), Negative binomial process count and mixture modeling, IEEE Trans. PAMI 37, for l and s.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tensorcep.likelihoods.parameter import Gamma
from tensorcep.likelihoods.uneven import ALPHAS, Evenness, Groups, fitted, log_prior

# Where alpha starts in `ALPHAS`: dispersions are then about the same.
FIRST = len(ALPHAS) - 1


class Pool(NamedTuple):
    """What is known of the common law.

    Attributes
    ----------
    of : tuple of float
        Shape and rate of the Gamma prior of r0.
    found : Evenness
        r0, and alpha, which is one of `ALPHAS`.
    """

    of: tuple[float, float]
    found: Evenness

    @property
    def law(self) -> tuple[float, float]:
        """Shape and rate of the common law."""
        return self.found.alpha, self.found.alpha / self.found.tau

    @property
    def log_prior(self) -> float:
        """The log density of log r0 and of alpha beforehand."""
        return log_prior(self.found.tau, self.of)


def first_pool(of: tuple[float, float], start: float) -> Pool:
    """The common law to begin with."""
    return Pool(of, Evenness(start, FIRST, 1.0))


def told(shape: np.ndarray, rate: np.ndarray) -> Groups:
    """What entries add to shapes and rates (m,), as groups of entries whose noise differs."""
    return Groups(2.0 * shape, 2.0 * rate)


def pooled(pool: Pool, law: Gamma) -> tuple[Pool, Gamma]:
    """The best common law given what entries added to the laws of all r under the one before; and these under it."""
    a, b = pool.law
    shape, rate = np.maximum(law.a - a, 0.0), np.maximum(law.b - b, 0.0)
    pool = pool._replace(found=fitted(told(shape, rate), pool.of, pool.found.tau, pool.found.place))
    a, b = pool.law
    return pool, Gamma(a + shape, b + rate)
