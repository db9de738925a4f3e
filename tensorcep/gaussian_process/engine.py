"""Approximate posteriors of Gaussian processes: prior times sites, proposals of sites, and the loop over them."""

from __future__ import annotations

import contextlib
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import linalg
from scipy.linalg import LinAlgError, blas, lapack

from tensorcep.core.checks import fail_value
from tensorcep.ep.gaussian import MAX_HALVINGS, MOST_DAMPING, SLOWER, Functions
from tensorcep.ep.linear_gaussian import root_of
from tensorcep.ep.sites import Sites
from tensorcep.ep.sweep import Terms
from tensorcep.gaussian_process.settings import EP, QP, GPSettings, Laplace
from tensorcep.kernels.special import REACH
from tensorcep.likelihoods.base import Likelihood, Triple, log_density
from tensorcep.likelihoods.binary import PROBIT

# A Gaussian process prior at n points times Gaussian sites: moments, normaliser, and what predictions are made of.
#
# For sites of positive precision everything follows from one Cholesky factor of I + T^1/2 K T^1/2; where some are
# negative, from one of I + C'T C with K = C C'.
#
# Source: Rasmussen and Williams (2006), Gaussian processes for machine learning, sec. 3.6.3.

# Sites that add less than this fraction to the precision of their latent value: its variance comes from a product,
# which does not cancel, and not from the diagonal of an inverse.
LEAST_INFORMED = 1e-5
# Rows of a triangle that are mirrored at a time.
ROWS = 256


class Prior:
    """f ~ N(mean, K) at the training points, K (n, n) and a constant prior mean."""

    def __init__(self, K: np.ndarray, mean: float = 0.0):
        self.K, self.mean, self.variance = K, mean, np.diag(K).copy()

    @cached_property
    def root(self) -> np.ndarray:
        """C with K = C C', of as many columns as K has rank; only sites of negative precision need it."""
        root = root_of(self.K, len(self.K))
        return root if root.ndim == 2 else np.diag(root)


class Posterior:
    """Prior times sites exp(nu f - tau f^2 / 2); raises LinAlgError where that is not a Gaussian."""

    # `f` and `s` are mean and variance of the latent values, `dual` is K^-1 (f - mean), all (n,); `log_root_det` is
    # half of the log determinant of I + K T, `log_integral` the log of the integral of prior times sites.
    def __init__(self, prior: Prior, tau: np.ndarray, nu: np.ndarray):
        self.prior, self.tau = prior, tau
        mean, K, pull = prior.mean, prior.K, nu - tau * prior.mean
        self._positive = bool((tau >= 0.0).all())
        if not self._positive:  # by the root of the prior
            C = prior.root
            P = C.T @ (tau[:, None] * C)
            P[np.diag_indices_from(P)] += 1.0
            self._chol = _cholesky(P.T)
            self.log_root_det = float(np.log(np.diag(self._chol)).sum())
            deviation = C @ lapack.dpotrs(self._chol, C.T @ pull, lower=1)[0]
            self.f, self.dual = mean + deviation, pull - tau * deviation
            half = linalg.solve_triangular(self._chol, C.T, lower=True)
            self.s = np.einsum("ij,ij->j", half, half)
        elif not tau.any():  # the prior, with a pull
            self._inverse, self.log_root_det, self.dual = np.asfortranarray(np.eye(len(K))), 0.0, pull
            self.f, self.s = mean + K @ pull, prior.variance.copy()
        else:  # by those of the sites
            root = np.sqrt(tau)
            B = K * root
            B *= root[:, None]
            B[np.diag_indices_from(B)] += 1.0
            chol = _cholesky(B.T)
            self.log_root_det = float(np.log(np.diag(chol)).sum())
            self._inverse = lapack.dtrtri(chol, lower=1, overwrite_c=1)[0]  # in the place of B
            self.dual = pull - root * (self._inverse.T @ (self._inverse @ (root * (K @ pull))))
            self.f = mean + K @ self.dual
            kept = np.einsum("ij,ij->j", self._inverse, self._inverse)  # the diagonal of B^-1, 1 - tau s
            weak = kept > 1.0 - LEAST_INFORMED
            self.s = (1.0 - kept) / np.where(weak, 1.0, tau)
            if weak.any():
                half = self._inverse @ (root[:, None] * K[:, weak])
                self.s[weak] = prior.variance[weak] - np.einsum("ij,ij->j", half, half)
        offset = (nu - 0.5 * tau * mean) * mean
        self.log_integral = float(offset.sum() + 0.5 * (pull @ (self.f - mean)) - self.log_root_det)

    @cached_property
    def resolvent(self) -> np.ndarray:
        """(K + T^-1)^-1 = T - T S T, S the posterior covariance, (n, n); made once, in the place of the factor."""
        if not self._positive:
            half = linalg.solve_triangular(self._chol, self.prior.root.T * self.tau, lower=True)
            R = half.T @ half
            np.negative(R, out=R)
            R[np.diag_indices_from(R)] += self.tau
            return np.asarray(R)
        R = lapack.dlauum(self._inverse, lower=1, overwrite_c=1)[0]
        del self._inverse
        for first in range(0, len(R), ROWS):  # the upper triangle, whose numbers are not those of the result
            rows = slice(first, first + ROWS)
            R[rows, first:] = R[first:, rows].T
            own = R[rows, rows]
            own[:] = np.tril(own.T) + np.tril(own.T, -1).T
        root = np.sqrt(self.tau)
        R *= root
        R *= root[:, None]
        return np.asarray(R)

    def covariance(self) -> np.ndarray:
        """The posterior covariance of f, (n, n)."""
        product = self.prior.K @ self.resolvent @ self.prior.K
        return np.subtract(self.prior.K, product, out=product)

    def functions(self) -> Functions:
        """The posterior of f at any points."""
        return Functions(self.dual, self.resolvent)


def _cholesky(B: np.ndarray) -> np.ndarray:
    """The lower factor of a matrix in columns, in its place."""
    chol, info = lapack.dpotrf(B, lower=1, clean=1, overwrite_a=1)
    if info != 0 or not np.isfinite(chol[-1, -1]):
        raise LinAlgError("prior times sites is not a Gaussian")
    return np.asarray(chol)


# Anderson's acceleration of a fixed-point iteration of sites.
#
# Source: Anderson (1965), Iterative procedures for nonlinear integral equations.

# Steps before the present one that take part, and the relative size below which a combination of them says nothing.
DEPTH, RCOND = 3, 1e-10
# Changes, in posterior standard deviations, from which on steps are combined.
NEAR = 0.5
# Points, and how far a step led from each.
Steps: TypeAlias = list[tuple[np.ndarray, np.ndarray]]


def mix(history: Steps, posterior: Posterior, old: Sites, new: Sites, change: float) -> Sites | None:
    """Combine the last steps, which this one joins, into one that leaves the least change, if changes were linear."""
    point, residual = np.concatenate(old[:2]), np.concatenate(new[:2]) - np.concatenate(old[:2])
    before = history[-DEPTH:]
    history[:] = [*before, (point, residual)]
    if change > NEAR or not before:
        return None
    # in units of the posterior, as the change is that the tolerance is about
    unit = np.concatenate([posterior.s, np.sqrt(np.maximum(posterior.s, 0.0))])
    moved = np.stack([residual - r for _, r in before], axis=1)
    went = np.stack([point - p for p, _ in before], axis=1)
    share = np.linalg.lstsq(unit[:, None] * moved, unit * residual, rcond=RCOND)[0]
    tau, nu = np.split(point + residual - (went + moved) @ share, 2)
    worse = (tau < 0.0).any() and (new.tau >= 0.0).all()  # sites of positive precision are kept so
    return None if worse or not (np.isfinite(tau).all() and np.isfinite(nu).all()) else Sites(tau, nu, new.logc)


# Of means over a Gaussian of f, for variational Bayes: nodes of the trapezoidal rule per standard deviation of f and
# per unit of f. The error of an analytic integrand falls exponentially with their density.
NODES, NODES_PER_UNIT, MAX_NODES = 5.0, 5.0, 2048


# What the methods differ in: new sites from a posterior, the evidence, and its derivative by the kernel matrix.
#
# Source: Rasmussen and Williams (2006), algorithms 3.1, 3.5 and 5.1; Opper and Archambeau (2009).


class Observations(NamedTuple):
    """Observations and the likelihood of each, in its own coding; theta is its parameter."""

    likelihood: Likelihood
    y: np.ndarray
    theta: float


class EPProposal:
    """EP, and quantile propagation where there is a rule for it."""

    # Of every method: whether steps have an objective that they must not lower, and whether they approach the fixed
    # point at a steady pace, so that combinations of them are better; and the fraction of the old sites that is kept,
    # None where that is found. EP's derivative is exact at its fixed point; it is not that of QP's surrogate.
    rises, mixes = False, True

    def __init__(self, data: Observations, settings: EP):
        rule = settings.rule if isinstance(settings, QP) else None
        if rule == "table" and data.likelihood is not PROBIT:
            fail_value(f"rule='table' is for the likelihood 'probit'; got {data.likelihood.name!r}; use 'quadrature'.")
        self._terms = Terms(data.likelihood, data.y, data.theta, 1.0, rule)
        self.damping, self._sequential = settings.damping, settings.schedule == "sequential"

    def start(self, given: Sites | None) -> Sites:
        """The sites to begin with: those given, if there are any."""
        return self._terms.start_sites(given)

    def propose(self, posterior: Posterior, sites: Sites, damping: float) -> tuple[Sites, float, int]:
        """Undamped new sites, or those given refined in place; the largest change, how many were left as they were."""
        if not self._sequential:
            return self._terms.propose_all(posterior.f, posterior.s, sites, 0.0)
        mean, cov, change, skipped = posterior.f.copy(), np.asfortranarray(posterior.covariance()), 0.0, 0
        for i in range(len(mean)):
            tau, nu = sites.tau[i], sites.nu[i]
            f, s = mean[i : i + 1].copy(), cov[i : i + 1, i].copy()
            moved, left_out = self._terms.refine(i, f, s, sites, damping)
            change, skipped = max(change, moved), skipped + left_out
            dtau, dnu = sites.tau[i] - tau, sites.nu[i] - nu
            shrink = 1.0 / (1.0 + dtau * s[0])
            column = cov[:, i].copy()
            mean += (shrink * (dnu - dtau * f[0])) * column
            blas.dger(-dtau * shrink, column, column, a=cov, overwrite_a=1)
        return sites, change, skipped

    def objective(self, posterior: Posterior, sites: Sites) -> float:
        """What steps raise, if there is such a thing."""
        return 0.0

    def pull(self, posterior: Posterior) -> np.ndarray | None:
        """u in the part (u a' + a u') / 2 that the evidence's derivative by K has beside (a a' - R) / 2; None for 0."""
        return None

    def evidence(self, posterior: Posterior, sites: Sites) -> float:
        """The estimate of the log evidence: log of the integral of prior times scaled sites."""
        self._terms.moments(posterior.f, posterior.s, sites)
        work = self._terms.work
        m, v, tau, nu = work.m, work.v, sites.tau, sites.nu
        grown = 1.0 + v * tau
        good = (v > 0.0) & (grown > 0.0) & np.isfinite(work.logz)  # others keep the scale that they had
        grown = np.where(good, grown, 1.0)
        alone = (nu - 0.5 * tau * m) * m + 0.5 * (nu - tau * m) ** 2 * v / grown - 0.5 * np.log(grown)
        return posterior.log_integral + float(np.where(good, work.logz - alone, sites.logc).sum())


class _OfDensity:
    """What methods that look at log p(y | f) share."""

    rises, mixes, damping = True, True, None

    def __init__(self, data: Observations):
        record = data.likelihood
        if record.loglik is None:
            fail_value(f"method must be 'ep' or 'qp' for the likelihood {record.name!r}, whose density has no slope.")
        self._record, self._y = record, record.check_y(data.y)
        self._theta = np.full(len(self._y), data.theta)

    def start(self, given: Sites | None) -> Sites:
        """What the likelihood says in the rough, because a Newton step from the prior can be far too long."""
        if given is not None:
            return given
        zero = np.zeros(len(self._y))
        tau, nu = (zero, zero) if self._record.rough is None else self._record.rough(self._y, self._theta)
        return Sites(tau, nu, zero)

    def _density(self, posterior: Posterior) -> Triple:
        """Log p(y | f), its slope and its curve at the means."""
        return log_density(self._record.loglik, self._y, posterior.f, self._theta)

    def propose(self, posterior: Posterior, sites: Sites, damping: float) -> tuple[Sites, float, int]:
        f, s, (_, slope, curve) = posterior.f, posterior.s, self._density(posterior)
        new = Sites(-curve, slope - curve * f, sites.logc)
        dtau, dnu = new.tau - sites.tau, new.nu - sites.nu
        change = np.maximum(np.abs(dtau) * s, np.abs(dnu - f * dtau) * np.sqrt(np.maximum(s, 0.0)))
        return new, float(change.max()), 0

    def pull(self, posterior: Posterior) -> np.ndarray | None:
        return None


class LaplaceProposal(_OfDensity):
    """Newton's steps to the mode."""

    mixes = False

    def __init__(self, data: Observations):
        super().__init__(data)
        if self._record.third is None:
            fail_value(f"method must not be 'laplace' for the likelihood {self._record.name!r}, which lacks third.")

    def objective(self, posterior: Posterior, sites: Sites) -> float:
        """Log density of observations and latent values, without the prior's constant."""
        return float(self._density(posterior)[0].sum() - 0.5 * (posterior.dual @ (posterior.f - posterior.prior.mean)))

    def evidence(self, posterior: Posterior, sites: Sites) -> float:
        """The objective and half of the log determinant, by the curvature of the sites."""
        return self.objective(posterior, sites) - posterior.log_root_det

    def pull(self, posterior: Posterior) -> np.ndarray | None:
        """The mode moves with K: (I + W K)^-1 of half the variances times the third derivatives."""
        third: Any = self._record.third
        half = 0.5 * posterior.s * third(self._y, posterior.f, self._theta)
        return half - posterior.resolvent @ (posterior.prior.K @ half)


class VBProposal(_OfDensity):
    """Fixed-point steps to the Gaussian with the highest lower bound."""

    _at: np.ndarray | None = None
    _means: Triple | None = None

    def _density(self, posterior: Posterior) -> Triple:
        """Their means over a posterior, which its bound and its proposal share."""
        if self._means is not None and self._at is posterior.f:
            return self._means
        self._at, f, s, y, theta = posterior.f, posterior.f, posterior.s, self._y, self._theta
        if self._record.averaged is not None:
            self._means = self._record.averaged(y, f, s, theta)
            return self._means
        sd = np.sqrt(np.maximum(s, 0.0))
        count = int(min(2.0 * REACH * (NODES + NODES_PER_UNIT * sd.max(initial=0.0)), MAX_NODES)) + 1
        u = np.linspace(-REACH, REACH, count)
        weight = np.exp(-0.5 * u * u)
        at = f[:, None] + sd[:, None] * u
        found = log_density(self._record.loglik, np.repeat(y, count), at.ravel(), np.repeat(theta, count))
        value, slope, curve = (part.reshape(at.shape) @ (weight / weight.sum()) for part in found)
        self._means = value, slope, curve
        return self._means

    def objective(self, posterior: Posterior, sites: Sites) -> float:
        return self.evidence(posterior, sites)

    def evidence(self, posterior: Posterior, sites: Sites) -> float:
        """The lower bound E[log p(y | f)] - KL(q || prior)."""
        value = self._density(posterior)[0]
        sited = sites.nu @ posterior.f - 0.5 * (sites.tau @ (posterior.f**2 + posterior.s))
        return float(value.sum() + posterior.log_integral - sited)


Proposal: TypeAlias = EPProposal | LaplaceProposal | VBProposal

# The loop that all methods share: sites to posterior to sites, until no site would change.

# What an objective may lose to rounding, relative to its size; and the change, in posterior standard deviations, from
# which on steps are too short for it to fall.
SLACK, SURE = 1e-9, 1e-3


class Fit(NamedTuple):
    """What a method leaves."""

    sites: Sites
    posterior: Posterior
    log_evidence: float  # the method's estimate or lower bound of log p(y)
    n_iter: int
    converged: bool


class Stop(NamedTuple):
    """When sweeps end: where no change is above `tol`, or after `max_iter`."""

    max_iter: int
    tol: float


def proposal_of(data: Observations, settings: GPSettings) -> Proposal:
    """The method of these settings."""
    if isinstance(settings, EP):
        return EPProposal(data, settings)
    return LaplaceProposal(data) if isinstance(settings, Laplace) else VBProposal(data)


def fit_sites(prior: Prior, data: Observations, settings: GPSettings, stop: Stop, start: Sites | None = None) -> Fit:
    """Find the sites of a method, from given ones or its own start; FloatingPointError if there is no posterior."""
    # Steps are combined by Anderson's acceleration unless a damping is given.
    method = proposal_of(data, settings)
    damping, sites = method.damping, method.start(start)
    posterior = _posterior(prior, sites)
    mixes, history = method.mixes and damping is None, Steps()
    kept, last, value = damping or 0.0, np.inf, method.objective(posterior, sites)
    n_iter, change, skipped = 0, np.inf, 0
    while n_iter < stop.max_iter:
        n_iter += 1
        new, change, skipped = method.propose(posterior, sites, kept)
        if new is sites:
            posterior = _posterior(prior, sites)
        if change < stop.tol and not skipped:
            break
        if damping is None and not method.rises and change >= last:
            kept = min(1.0 - SLOWER * (1.0 - kept), MOST_DAMPING)
        last = change
        if new is sites:
            continue
        mixed = mix(history, posterior, sites, new, change) if mixes else None
        least = value - SLACK * (1.0 + abs(value)) if method.rises and change > SURE else -np.inf
        sites, posterior, value = _step(prior, method, sites, new, mixed, kept, least)
    return Fit(sites, posterior, method.evidence(posterior, sites), n_iter, change < stop.tol and not skipped)


def _step(
    prior: Prior, method: Proposal, old: Sites, new: Sites, mixed: Sites | None, kept: float, least: float
) -> tuple[Sites, Posterior, float]:
    """The combined step, or else the damped one, halved until it leaves a Gaussian of at least this objective."""
    sites = mixed
    for _ in range(MAX_HALVINGS + (mixed is not None)):
        if sites is None:
            sites = Sites(*(b + kept * (a - b) for a, b in zip(old, new, strict=True)))
            kept = 0.5 * (1.0 + kept)
        with contextlib.suppress(LinAlgError):
            posterior = Posterior(prior, sites.tau, sites.nu)
            value = method.objective(posterior, sites)
            if value >= least:
                return sites, posterior, value
            del posterior  # and its matrices
        sites = None
    posterior = _posterior(prior, old)
    return old, posterior, method.objective(posterior, old)


def _posterior(prior: Prior, sites: Sites) -> Posterior:
    try:
        return Posterior(prior, sites.tau, sites.nu)
    except LinAlgError:
        contradict = "labels contradict each other, such as those that a step without slack cannot all satisfy"
        why = f"the kernel may not be positive definite, or {contradict}"
        raise FloatingPointError(f"the sites leave no Gaussian posterior: {why}.") from None
