"""What the methods differ in: new sites from a posterior, the evidence, and its derivative by the kernel matrix.

Source: Rasmussen and Williams (2006), algorithms 3.1, 3.5 and 5.1; Opper and Archambeau (2009).
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.ep.sites import Sites
from tensorcep.ep.sweep import Terms
from tensorcep.gaussian_process.expected import expected_density
from tensorcep.gaussian_process.posterior import Posterior
from tensorcep.likelihoods.arrays import log_density
from tensorcep.likelihoods.base import Likelihood


class Data(NamedTuple):
    """Observations and the likelihood of each, in its own coding; theta is its parameter."""

    likelihood: Likelihood
    y: np.ndarray
    theta: float


class Proposal(Protocol):
    """One method.

    `rises` says whether steps have an objective that they must not lower, `mixes` whether they approach the fixed point
    at a steady pace, so that combinations of them are better.
    """

    rises: bool
    mixes: bool

    def start(self) -> Sites:
        """The sites to begin with."""

    def propose(self, posterior: Posterior, sites: Sites) -> tuple[Sites, float, int]:
        """Undamped new sites, the largest change, and how many were left as they were."""

    def objective(self, posterior: Posterior, sites: Sites) -> float:
        """What steps raise, if there is such a thing."""

    def evidence(self, posterior: Posterior, sites: Sites) -> float:
        """The estimate or lower bound of the log evidence."""

    def pull(self, posterior: Posterior) -> np.ndarray | None:
        """u in the part (u a' + a u') / 2 that the evidence's derivative by K has beside (a a' - R) / 2; None for 0."""


class EPProposal:
    """EP, and quantile propagation where there is a rule for it.

    The derivative is exact at EP's fixed point; it is not that of QP's surrogate.
    """

    rises, mixes = False, True

    def __init__(self, data: Data, rule: str | None = None):
        self._terms = Terms(data.likelihood, data.y, data.theta, 1.0, rule)

    def start(self) -> Sites:
        return self._terms.start_sites(None)

    def propose(self, posterior: Posterior, sites: Sites) -> tuple[Sites, float, int]:
        return self._terms.propose_all(posterior.f, posterior.s, sites, 0.0)

    def objective(self, posterior: Posterior, sites: Sites) -> float:
        return 0.0

    def evidence(self, posterior: Posterior, sites: Sites) -> float:
        """Log of the integral of prior times scaled sites."""
        self._terms.moments(posterior.f, posterior.s, sites)
        work = self._terms.work
        m, v, tau, nu = work.m, work.v, sites.tau, sites.nu
        grown = 1.0 + v * tau
        good = (v > 0.0) & (grown > 0.0) & np.isfinite(work.logz)  # others keep the scale that they had
        grown = np.where(good, grown, 1.0)
        alone = (nu - 0.5 * tau * m) * m + 0.5 * (nu - tau * m) ** 2 * v / grown - 0.5 * np.log(grown)
        return posterior.log_integral + float(np.where(good, work.logz - alone, sites.logc).sum())

    def pull(self, posterior: Posterior) -> np.ndarray | None:
        return None


class _OfDensity:
    """What methods that look at log p(y | f) share."""

    rises, mixes = True, True

    def __init__(self, data: Data):
        record = data.likelihood
        if record.loglik is None:
            fail_value(f"method must be 'ep' or 'qp' for the likelihood {record.name!r}, whose density has no slope.")
        self._record, self._y = record, record.check_y(data.y)
        self._theta = np.full(len(self._y), data.theta)

    def start(self) -> Sites:
        """What the likelihood says in the rough, because a Newton step from the prior can be far too long."""
        zero = np.zeros(len(self._y))
        if self._record.rough is None:
            return Sites(zero, zero, zero)
        return Sites(*self._record.rough(self._y, self._theta), zero)

    def _sites(self, posterior: Posterior, sites: Sites, slope: np.ndarray, curve: np.ndarray) -> Any:
        f, s = posterior.f, posterior.s
        new = Sites(-curve, slope - curve * f, sites.logc)
        dtau, dnu = new.tau - sites.tau, new.nu - sites.nu
        change = np.maximum(np.abs(dtau) * s, np.abs(dnu - f * dtau) * np.sqrt(np.maximum(s, 0.0)))
        return new, float(change.max()), 0


class LaplaceProposal(_OfDensity):
    """Newton's steps to the mode."""

    mixes = False

    def __init__(self, data: Data):
        super().__init__(data)
        third = self._record.third
        if third is None:
            fail_value(f"method must not be 'laplace' for the likelihood {self._record.name!r}, which lacks third.")
        self._third = third

    def _at_mode(self, posterior: Posterior) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        return log_density(self._record.loglik, self._y, posterior.f, self._theta)

    def propose(self, posterior: Posterior, sites: Sites) -> tuple[Sites, float, int]:
        _, slope, curve = self._at_mode(posterior)
        return self._sites(posterior, sites, slope, curve)

    def objective(self, posterior: Posterior, sites: Sites) -> float:
        """Log density of observations and latent values, without the prior's constant."""
        return float(self._at_mode(posterior)[0].sum() - 0.5 * (posterior.dual @ (posterior.f - posterior.prior.mean)))

    def evidence(self, posterior: Posterior, sites: Sites) -> float:
        """The objective and half of the log determinant, by the curvature of the sites."""
        return self.objective(posterior, sites) - posterior.log_root_det

    def pull(self, posterior: Posterior) -> np.ndarray | None:
        """The mode moves with K: (I + W K)^-1 of half the variances times the third derivatives."""
        half = 0.5 * posterior.s * self._third(self._y, posterior.f, self._theta)
        return half - posterior.resolvent() @ (posterior.prior.K @ half)


class VBProposal(_OfDensity):
    """Fixed-point steps to the Gaussian with the highest lower bound."""

    def __init__(self, data: Data):
        super().__init__(data)
        self._at: np.ndarray | None = None
        self._means: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def _expected(self, posterior: Posterior) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The means at a posterior, which its bound and its proposal share."""
        if self._means is None or self._at is not posterior.f:
            self._at = posterior.f
            self._means = expected_density(self._record, self._y, self._theta, posterior.f, posterior.s)
        return self._means

    def propose(self, posterior: Posterior, sites: Sites) -> tuple[Sites, float, int]:
        _, slope, curve = self._expected(posterior)
        return self._sites(posterior, sites, slope, curve)

    def objective(self, posterior: Posterior, sites: Sites) -> float:
        return self.evidence(posterior, sites)

    def evidence(self, posterior: Posterior, sites: Sites) -> float:
        """The lower bound E[log p(y | f)] - KL(q || prior)."""
        value = self._expected(posterior)[0]
        sited = sites.nu @ posterior.f - 0.5 * (sites.tau @ (posterior.f**2 + posterior.s))
        return float(value.sum() + posterior.log_integral - sited)

    def pull(self, posterior: Posterior) -> np.ndarray | None:
        return None
