"""Automatic relevance determination: a learned precision of every component, shared by all modes.

The prior of the rows of mode k is N(mu_k, Lam_k^-1) with mu_k given and Lam_k diagonal. Each component's precision has
a Gamma prior, so that a component without use shrinks in every mode at once.

Source: Zhao, Zhang and Cichocki, "Bayesian CP Factorization of Incomplete Tensors", sec. 3. Where we differ: precisions
are in units of the prior scale, and rows without entries are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import digamma

from tensorcep.likelihoods.parameters.base import divergences
from tensorcep.priors.base import Arrays, LearnedPrior, ModePrior, Neighbours

ARD_SHAPE = 1e-3  # shape and rate of the Gamma prior of a precision, in units of the prior scale


class PosteriorOfComponents(NamedTuple):
    """Gamma posteriors (shapes a, rates b) of the precisions in units of the prior scale, and the rows of each mode."""

    a: np.ndarray
    b: np.ndarray
    counts: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ARDPrior(LearnedPrior):
    """Rows whose precision is learned component by component; their means are as expected (see `LearnedPrior`)."""

    component: np.ndarray | None = None  # (K, R) int64: that each column of a mode belongs to, where not its number

    @property
    def components(self) -> np.ndarray:
        """The component that each column belongs to, (K, R)."""
        if self.component is None:
            return np.broadcast_to(np.arange(self.free.shape[1]), self.free.shape)
        return self.component

    def learn(self, means: Arrays, covs: Arrays, coupled: Neighbours = ()) -> PosteriorOfComponents:
        a, b = (np.full(int(self.components.max()) + 1, self.strength * ARD_SHAPE) for _ in range(2))
        for k, (mean, cov) in enumerate(zip(means, covs, strict=True)):
            square = ((mean - self.mean[k]) ** 2).sum(axis=0) + np.diagonal(cov)
            np.add.at(a, self.components[k], 0.5 * len(mean) * self.free[k])
            np.add.at(b, self.components[k], 0.5 * square / self.scale[k] ** 2 * self.free[k])
        return PosteriorOfComponents(a, b, tuple(len(mean) for mean in means))

    def expectation(self, now: ModePrior, posterior: PosteriorOfComponents) -> ModePrior:
        return self._with_diagonal(now, posterior.a / posterior.b)

    def draw(self, now: ModePrior, rows: list[np.ndarray], rng: np.random.Generator) -> ModePrior:
        q = self.learn(rows, [np.zeros((now.mean.shape[1],) * 2)] * len(rows))
        return self._with_diagonal(now, rng.gamma(q.a) / q.b)

    def bound(self, posterior: PosteriorOfComponents) -> float:
        shape, used = self.strength * ARD_SHAPE, np.zeros(len(posterior.a))
        for k, n in enumerate(posterior.counts):
            np.add.at(used, self.components[k], n * self.free[k])
        a, b = posterior.a, posterior.b
        return float((0.5 * used * (digamma(a) - np.log(a)) - divergences(a, b, shape, shape)).sum())

    def in_columns(self, Lam: np.ndarray, eta: np.ndarray, index: np.ndarray) -> ARDPrior:
        return replace(super().in_columns(Lam, eta, index), component=np.maximum(index, 0))

    def _with_diagonal(self, now: ModePrior, relative: np.ndarray) -> ModePrior:
        """The prior with these precisions, in units of the prior scale."""
        precision = now.precision.copy()
        for k, free in enumerate(self.free):
            precision[k][np.ix_(free, free)] = np.diag((relative[self.components[k]] / self.scale[k] ** 2)[free])
        return ModePrior(np.where(self.free, self.mean, now.mean), precision)
