"""The loop that all methods share: sites to posterior to sites, until no site would change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, blas

from tensorcep.core.checks import fail_value
from tensorcep.ep.gaussian import MAX_HALVINGS, MOST_DAMPING, SLOWER
from tensorcep.ep.sites import Sites
from tensorcep.ep.sweep import Terms
from tensorcep.gaussian_process.mixing import Mixer
from tensorcep.gaussian_process.posterior import Posterior, Prior
from tensorcep.gaussian_process.proposals import Data, EPProposal, LaplaceProposal, Proposal, VBProposal
from tensorcep.gaussian_process.settings import EP, QP, GPSettings, Laplace
from tensorcep.likelihoods.probit import PROBIT

# What an objective may lose to rounding, relative to its size; and the change, in posterior standard deviations, from
# which on steps are too short for it to fall.
SLACK, SURE = 1e-9, 1e-3


class Fit(NamedTuple):
    """What a method leaves.

    Attributes
    ----------
    sites : Sites
    posterior : Posterior
    log_evidence : float
        The method's estimate or lower bound of log p(y).
    n_iter : int
    converged : bool
    skipped : int
        Site updates left out in the last sweep.
    change : float
        The largest change that another sweep would make, in posterior standard deviations.
    """

    sites: Sites
    posterior: Posterior
    log_evidence: float
    n_iter: int
    converged: bool
    skipped: int
    change: float


class Stop(NamedTuple):
    """When sweeps end: where no change is above `tol`, or after `max_iter`."""

    max_iter: int
    tol: float


def proposal_of(data: Data, settings: GPSettings) -> Proposal:
    """The method of these settings."""
    if isinstance(settings, QP):
        if settings.rule == "table" and data.likelihood is not PROBIT:
            fail_value(f"rule='table' is for the likelihood 'probit'; got {data.likelihood.name!r}; use 'quadrature'.")
        return EPProposal(data, settings.rule)
    if isinstance(settings, EP):
        return EPProposal(data)
    return LaplaceProposal(data) if isinstance(settings, Laplace) else VBProposal(data)


def fit_sites(prior: Prior, data: Data, settings: GPSettings, stop: Stop, start: Sites | None = None) -> Fit:
    """Find the sites of a method, from given ones or from its own start.

    Raises
    ------
    FloatingPointError
        If there is no Gaussian posterior.
    """
    if isinstance(settings, EP) and settings.schedule == "sequential":
        return _sequential(prior, data, settings, stop, start)
    return _parallel(prior, proposal_of(data, settings), getattr(settings, "damping", None), stop, start)


def _parallel(prior: Prior, method: Proposal, damping: float | None, stop: Stop, start: Sites | None) -> Fit:
    """All sites from one posterior, with Anderson's acceleration unless a damping is given."""
    sites = method.start() if start is None else start
    posterior = _posterior(prior, sites)
    mixer = Mixer() if method.mixes and damping is None else None
    kept, last, value = damping or 0.0, np.inf, method.objective(posterior, sites)
    n_iter, change, skipped = 0, np.inf, 0
    while n_iter < stop.max_iter:
        n_iter += 1
        new, change, skipped = method.propose(posterior, sites)
        if change < stop.tol and not skipped:
            break
        if damping is None and not method.rises and change >= last:
            kept = min(1.0 - SLOWER * (1.0 - kept), MOST_DAMPING)
        last = change
        mixed = None if mixer is None else mixer.mix(posterior, sites, new, change)
        least = value - SLACK * (1.0 + abs(value)) if method.rises and change > SURE else -np.inf
        step = None if mixed is None else _accepted(prior, method, mixed, least)
        if step is None:
            step = _damped(prior, method, sites, new, kept, least)
        sites, posterior, value = step
    return Fit(
        sites=sites,
        posterior=posterior,
        log_evidence=method.evidence(posterior, sites),
        n_iter=n_iter,
        converged=change < stop.tol and not skipped,
        skipped=skipped,
        change=change,
    )


Step = tuple[Sites, Posterior, float]


def _accepted(prior: Prior, method: Proposal, sites: Sites, least: float) -> Step | None:
    """The step to these sites, if their posterior is a Gaussian and the objective is not below this."""
    posterior = _posterior_or_none(prior, sites)
    if posterior is None:
        return None
    value = method.objective(posterior, sites)
    return (sites, posterior, value) if value >= least else None


def _damped(prior: Prior, method: Proposal, old: Sites, new: Sites, kept: float, least: float) -> Step:
    """The damped step, halved until it can be accepted."""
    for _ in range(MAX_HALVINGS):
        sites = Sites(*(b + kept * (a - b) for a, b in zip(old, new, strict=True)))
        step = _accepted(prior, method, sites, least)
        if step is not None:
            return step
        kept = 0.5 * (1.0 + kept)
    posterior = _posterior(prior, old)
    return old, posterior, method.objective(posterior, old)


def _posterior_or_none(prior: Prior, sites: Sites) -> Posterior | None:
    try:
        return Posterior(prior, sites.tau, sites.nu)
    except LinAlgError:
        return None


def _posterior(prior: Prior, sites: Sites) -> Posterior:
    posterior = _posterior_or_none(prior, sites)
    if posterior is None:
        raise FloatingPointError(
            "the sites leave no Gaussian posterior: the kernel may not be positive definite, or labels contradict each "
            "other, such as those that a step without slack cannot all satisfy."
        )
    return posterior


def _sequential(prior: Prior, data: Data, settings: EP, stop: Stop, start: Sites | None) -> Fit:
    """EP with the posterior refined after every site, and made afresh after every sweep."""
    terms = Terms(data.likelihood, data.y, data.theta, 1.0, getattr(settings, "rule", None))
    sites = terms.start_sites(start)
    posterior = _posterior(prior, sites)
    damping, last = settings.damping or 0.0, np.inf
    n_iter, change, skipped = 0, np.inf, 0
    while n_iter < stop.max_iter:
        n_iter += 1
        change, skipped = _sweep(terms, sites, posterior, damping)
        posterior = _posterior(prior, sites)
        if change < stop.tol and not skipped:
            break
        if settings.damping is None and change >= last:
            damping = min(1.0 - SLOWER * (1.0 - damping), MOST_DAMPING)
        last = change
    value = EPProposal(data, getattr(settings, "rule", None)).evidence(posterior, sites)
    return Fit(sites, posterior, value, n_iter, change < stop.tol and not skipped, skipped, change)


def _sweep(terms: Terms, sites: Sites, posterior: Posterior, damping: float) -> tuple[float, int]:
    """Refine every site once, in order; the largest change and how many were left out."""
    mean, cov = posterior.f.copy(), np.asfortranarray(posterior.covariance())
    worst, left_out = 0.0, 0
    for i in range(len(mean)):
        tau, nu = sites.tau[i], sites.nu[i]
        f, s = mean[i : i + 1].copy(), cov[i : i + 1, i].copy()
        change, skipped = terms.refine(i, f, s, sites, damping)
        worst, left_out = max(worst, change), left_out + skipped
        dtau, dnu = sites.tau[i] - tau, sites.nu[i] - nu
        shrink = 1.0 / (1.0 + dtau * s[0])
        column = cov[:, i].copy()
        mean += (shrink * (dnu - dtau * f[0])) * column
        blas.dger(-dtau * shrink, column, column, a=cov, overwrite_a=1)
    return worst, left_out
