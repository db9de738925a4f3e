"""The record of what is learned of a likelihood: a positive number with a Gamma prior.

Its law given the rest is Gamma(a + shape, rate b + rate), where shape and rate add up what the entries say.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.gammas import gammas

TINY = np.finfo(float).tiny


class Gamma(NamedTuple):
    """Gamma laws of m parameters: shapes a and rates b, (m,) float64 each."""

    a: np.ndarray
    b: np.ndarray

    @property
    def mean(self) -> np.ndarray:
        """E[theta], (m,)."""
        return self.a / self.b

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        """A draw of each, (m,), never 0."""
        return np.asarray(np.maximum(rng.standard_gamma(self.a), TINY) / self.b)

    def bound(self, prior: tuple[float, float]) -> float:
        """What the laws add to a lower bound: minus their divergence from the prior."""
        return -gammas(self.a, self.b, *prior).divergence


class Counting(NamedTuple):
    """How the entries speak of a dispersion r: a number of tables adds to the shape of its law, a softplus to the rate.

    Attributes
    ----------
    tables : callable
        ``tables(y, r) -> array``: expected number of tables, elementwise.
    draw_tables : kernel
        ``draw_tables(first, last, y, used, r, key, tables, s)``: draws of them, for blocks as in `Augmentation.drawn`.
    softplus : callable
        ``softplus(f, square=None) -> array``: the rate of an entry, log(1 + e^f), or its expectation at E[f] = f and
        E[f^2] = square.
    log_constant : callable
        ``log_constant(y, r) -> array``: the part of log p(y | f) that depends on r and not on f.
    """

    tables: Callable[[np.ndarray, np.ndarray], np.ndarray]
    draw_tables: Any
    softplus: Callable[..., np.ndarray]
    log_constant: Callable[[np.ndarray, np.ndarray], np.ndarray]


# Rounds of the updates of tables and law in an expected update: they cost little and would hold up the rows.
ROUNDS = 10


class Parameter(NamedTuple):
    """A positive number theta that is learned of a likelihood.

    Attributes
    ----------
    name : str
    prior : tuple of float
        Shape and rate of its Gamma prior, where no other is given.
    start : float or None
        Where it starts, whatever its prior; None leaves that to the data.
    by_row : bool
        Whether the rows of a mode may have one each.
    counting : Counting or None
        How the entries speak of it. None: it is a precision, by which their weights are multiplied, and an entry adds
        1/2 to the shape and (target - f)^2 / 2 to the rate of its law.
    law_of_marginals : callable or None
        ``law_of_marginals(y, m, v, share, prior, start, used, group, earlier) -> Gamma``: its law where Gaussian
        marginals N(m, v) of f are all that is known, those of a share of the entries, of which each counts as `used`
        says and, where there are several, has that of its `group`.
    earlier : float
        What earlier entries, of other batches, have added to the rate of the prior.
    """

    name: str
    prior: tuple[float, float]
    start: float | None = None
    by_row: bool = False
    counting: Counting | None = None
    law_of_marginals: Callable[..., Gamma] | None = None
    earlier: float = 0.0

    @property
    def is_precision(self) -> bool:
        """Whether it multiplies the weights of the entries."""
        return self.counting is None

    def law_of_counts(
        self, prior: tuple[float, float], law: Gamma, rate: np.ndarray, counts: tuple[np.ndarray, ...]
    ) -> Gamma:
        """The law after rounds of updates from `law` in turn with the expected tables, at exp(E[log r]).

        `rate` (m,) are sums over the entries; `counts` the distinct pairs of a parameter and a count, (n,) each, and
        how many entries have them.
        """
        counting, (group, y, multiplicity) = self.counting, counts
        law = Gamma(law.a, prior[1] + rate)
        for _ in range(ROUNDS):
            tables = multiplicity * counting.tables(y, _typical(law)[group])  # type: ignore[union-attr]
            law = Gamma(prior[0] + np.bincount(group, weights=tables, minlength=len(law.a)), law.b)
        return law

    def bound_of_counts(self, prior: tuple[float, float], law: Gamma, counts: tuple[np.ndarray, ...]) -> float:
        """What the parameter and the part of the likelihood that depends on it alone add to a lower bound."""
        group, y, multiplicity = counts
        constant = self.counting.log_constant(y, _typical(law)[group])  # type: ignore[union-attr]
        return float((multiplicity * constant).sum()) + law.bound(prior)


def _typical(law: Gamma) -> np.ndarray:
    """exp(E[log theta]), (m,)."""
    return np.asarray(np.exp(gammas(law.a, law.b, 1.0, 1.0).log_mean))


# Gaussian noise; its default prior says nearly nothing.
NOISE_PRECISION = Parameter("noise_precision", (1e-3, 1e-3))
