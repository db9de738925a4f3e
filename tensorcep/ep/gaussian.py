"""Expectation propagation with a Gaussian posterior for generalised linear models and Gaussian processes.

The model is f_i = x_i'w with w ~ N(m0, V0), and one likelihood term per f_i (rank 1) or per k of them (rank k). Each
term is replaced by a site, a Gaussian factor in f_i, such that the moments of w agree with those under (cavity x term).

Inside, w = m0 + L u with V0 = L L' and u ~ N(0, I), so that a prior covariance may be singular and is never inverted.

Source: Minka (2008), EP: a quick reference, eqs 17-49 and 95-116; Minka (2001), Expectation propagation for approximate
Bayesian inference. Where we differ: natural parameters and log scales throughout (the printed scale factors need the
square root of a site's variance, which may be negative).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import check_choice, check_int, check_range, fail_value
from tensorcep.ep.linear_gaussian import DesignRows, Gaussian, design_of, gaussian_of
from tensorcep.ep.sites import Sites
from tensorcep.ep.sweep import CompiledTerm, FunctionTerm
from tensorcep.likelihoods import get_likelihood
from tensorcep.likelihoods.base import Likelihood

# Parallel updates of vectors overshoot where terms are correlated: part of the old site is kept from the start.
PARALLEL_DAMPING = 0.2
# Before a parallel sweep the mean settles, in so many steps at most, to a tenth of this part of the last change.
MAX_SETTLING, SETTLED = 20, 0.1
# When a sweep's change has not fallen below that of the sweep before, this part of the step is kept from then on.
SLOWER, MOST_DAMPING = 0.7, 0.95
# To a tolerance of at least the first of these, sweeps are made in single precision, which errs by a tenth of it; what
# is left of the second or less of a change, in double. So is the posterior that is returned.
LEAST_TOL, ROUGH = 1e-5, 1e-3
# Halvings of a parallel step whose posterior is not a Gaussian.
MAX_HALVINGS = 30


class EPResult(NamedTuple):
    """A fit of EP.

    Attributes
    ----------
    mean, cov : (d,), (d, d) float64
        Posterior of w; of f itself where X was None.
    log_evidence : float
        EP's estimate of the log marginal likelihood.
    sites : Sites
    n_iter : int
        Sweeps.
    converged : bool
        Whether the last undamped change was below `tol`.
    skipped : int
        Site updates left out in the last sweep because cavity or result was not a Gaussian.
    trace : dict of (n_iter,) float64
        Per sweep: change, log_evidence, skipped, seconds.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import GaussianEP
    >>> result = GaussianEP().fit(np.eye(2), np.array([1, 0]), "probit")
    >>> result.mean.round(2).tolist(), result.cov.shape, result.skipped
    ([0.56, -0.56], (2, 2), 0)
    """

    mean: np.ndarray
    cov: np.ndarray
    log_evidence: float
    sites: Sites
    n_iter: int
    converged: bool
    skipped: int
    trace: dict[str, np.ndarray]


@dataclass(frozen=True)
class GaussianEP:
    """Gaussian EP: prior N(prior_mean, prior_cov) times one likelihood term per row of X.

    Parameters
    ----------
    prior_mean : float or (d,)
    prior_cov : float, (d,) or (d, d)
        A number or a vector stands for a diagonal. A full matrix may be singular.
    schedule : {"sequential", "parallel"}
        Update the posterior after every site (the paper's), or once per sweep from all sites (one matrix product and
        one Cholesky factor, quicker for many weights, but it may need damping). Parallel updates of terms of rank 1
        start near the posterior's mode, and let the mean settle before each sweep, at the cost of a few products of X
        with a vector; to a `tol` of 1e-5 or more, those of a million numbers or more in X take products in single
        precision on the way, and in double for the posterior.
    damping : float in [0, 1), optional
        Fraction of the old site kept. By default it starts at 0, and for parallel updates of terms of rank k at 0.2,
        and grows while the changes do not fall.
    power : float
        Power EP: the power of a term that is refined at a time (1 is EP, towards 0 variational Bayes).
    max_iter : int
        Largest number of sweeps. One sequential sweep is assumed density filtering (ADF).
    tol : float
        Stop when no site's undamped update would change the mean of its f by more than this many posterior standard
        deviations, or the precision by more than this fraction.
    projection : {"kl", "w2"}
        Onto the Gaussian of the same moments (EP), or onto the nearest one in the L2 Wasserstein distance (quantile
        propagation), for the package's likelihoods; the evidence is then EP's formula at sites that are not EP's.

    Examples
    --------
    >>> import numpy as np
    >>> from tensorcep import GaussianEP
    >>> X, y = np.array([[1.0, 2.0], [-1.5, 0.5], [0.5, -1.0]]), np.array([1, 0, 1])
    >>> result = GaussianEP().fit(X, y, "probit")
    >>> result.converged, round(result.log_evidence, 2)
    (True, -1.99)
    """

    prior_mean: Any = 0.0
    prior_cov: Any = 1.0
    schedule: str = "sequential"
    damping: float | None = None
    power: float = 1.0
    max_iter: int = 100
    tol: float = 1e-6
    projection: str = "kl"

    def fit(self, X: Any, y: Any, likelihood: Any, theta: Any = None, sites: Sites | None = None) -> EPResult:
        """Run EP.

        Parameters
        ----------
        X : (n, d), (n, k, d), scipy.sparse matrix (n, d), or None
            Row i makes f_i = x_i'w; with k rows per term f_i is a vector. None: w is f itself (Gaussian processes, with
            the kernel matrix as the prior covariance).
        y : (n,)
            Observations; for a Python function a sequence of anything.
        likelihood : str, Likelihood or callable
            A name or record, which runs compiled; or a Python function ``tilted(y_i, m, V) -> (logz, alpha, beta)``:
            with f_i ~ N(m, V), the log of E[p(y_i | f_i)], its gradient in m and minus its Hessian. m and V are numbers
            for an X of two dimensions and (k,) and (k, k) arrays for three. With a power other than 1 the function is
            that of the term to this power.
        theta : float, (n,) or (n, p), optional
            Parameters of the likelihood for each entry; its default if left out.
        sites : Sites, optional
            Where to start, such as the sites of an earlier result; by default sites of 1 (parallel: those of a mode).

        Returns
        -------
        EPResult

        Raises
        ------
        ValueError, TypeError
            On input that is not allowed.
        FloatingPointError
            If the posterior stops being a Gaussian.

        Examples
        --------
        >>> import numpy as np
        >>> from tensorcep import GaussianEP
        >>> result = GaussianEP(prior_cov=4.0).fit(np.eye(2), np.array([1, 0]), "logit")
        >>> result.mean.round(1).tolist()
        [1.2, -1.2]
        """
        check_choice("schedule", self.schedule, ("sequential", "parallel"))
        power = check_range("power", self.power, 0.0, include_low=False)
        rule = None if check_choice("projection", self.projection, ("kl", "w2")) == "kl" else "quadrature"
        if rule is not None and power != 1.0:
            fail_value(f"power must be 1 with projection='w2'; got {power:g}.")
        max_iter, tol = check_int("max_iter", self.max_iter), check_range("tol", self.tol, 0.0)
        if not hasattr(y, "__len__"):
            raise TypeError(f"y must hold one observation for each row of X; got {type(y).__name__}.")
        design = design_of(X, len(y), self.prior_mean, self.prior_cov)
        damping = PARALLEL_DAMPING if self.schedule == "parallel" and design.vector else 0.0
        if self.damping is not None:
            damping = check_range("damping", self.damping, 0.0, 1.0, include_high=False)
        from_mode = sites is None and self.schedule == "parallel"
        design = design.with_rough() if from_mode and tol >= LEAST_TOL else design
        term: FunctionTerm | CompiledTerm
        if callable(likelihood) and not isinstance(likelihood, Likelihood):
            if theta is not None:
                fail_value("theta must be left out with a Python function, which can hold its parameters itself.")
            if rule is not None:
                fail_value("projection must be 'kl' with a Python function, whose density is not known; got 'w2'.")
            term = FunctionTerm(likelihood, y, design, power)
        else:
            record = likelihood if isinstance(likelihood, Likelihood) else get_likelihood(likelihood)
            term = CompiledTerm(record, y, theta, design, power, rule)
            sites = term.sites_at_mode() if from_mode else sites
        sites = term.start_sites(sites)
        state = _posterior(design, sites, rough=True)
        trace: dict[str, list[float]] = {name: [] for name in ("change", "log_evidence", "skipped", "seconds")}
        changes, change, skipped = trace["change"], np.inf, 0
        while len(changes) < max_iter and not (change < tol and not skipped):
            begin = time.perf_counter()
            if self.schedule == "sequential":  # the posterior is made afresh, so that rounding does not add up
                sites = Sites(*(part.copy() for part in sites))
                change, skipped = term.sweep(sites, state.mean.copy(), state.cov.copy(), damping)
                state = _posterior(design, sites)
            else:
                least = 0.1 * max(tol, SETTLED * changes[-1] if changes else SETTLED)
                sites, state, change, skipped = _parallel(design, term, sites, state, damping, least)
            if state.rough and (change < tol or len(changes) + 1 == max_iter):
                state = _posterior(design, sites)
            if self.damping is None and changes and change >= changes[-1]:
                damping = min(1.0 - SLOWER * (1.0 - damping), MOST_DAMPING)
            told = change, state.log_evidence, skipped, time.perf_counter() - begin
            for numbers, number in zip(trace.values(), told, strict=True):
                numbers.append(number)
        mean, cov = design.weights(state.mean, state.cov)
        arrays, n_iter = {name: np.array(numbers, dtype=np.float64) for name, numbers in trace.items()}, len(changes)
        converged = change < tol and not skipped
        return EPResult(mean, cov, state.log_evidence, sites, n_iter, converged, skipped, arrays)


def _posterior(design: DesignRows, sites: Sites, rough: bool = False) -> Gaussian:
    state = gaussian_of(design, sites, rough)
    if state is None:
        raise FloatingPointError(
            "the sites leave no Gaussian posterior: use damping or other start sites, or change terms that contradict "
            "each other, such as labels that a step without slack cannot all satisfy."
        )
    return state


Step = tuple[Sites, Gaussian, float, int]  # sites, their posterior, the largest change, and how many were left out


def _parallel(design: DesignRows, term: Any, sites: Sites, state: Gaussian, damping: float, least: float) -> Step:
    """All sites from one posterior; the step is halved until the new posterior is a Gaussian."""
    f, s = design.latent(state)
    if not design.vector:
        f, sites = _settle(design, term, sites, state, s, f, least)
    for _ in range(MAX_HALVINGS):
        new, change, skipped = term.propose_all(f, s, sites, damping)
        posterior = gaussian_of(design, new, rough=change > ROUGH)
        if posterior is not None:
            return new, posterior, change, skipped
        damping = 0.5 * (1.0 + damping)
    raise FloatingPointError("parallel updates found no Gaussian posterior; use schedule='sequential'.")


def _settle(
    design: DesignRows, term: Any, sites: Sites, state: Gaussian, s: np.ndarray, f: np.ndarray, least: float
) -> tuple[np.ndarray, Sites]:
    """Means f, and sites of the same precisions, that the next steps would give if the covariance stayed as it is."""
    # A step costs two products of a matrix with a vector, a sweep one of matrices; the mean settles to `least`
    # posterior standard deviations, unless steps stop shrinking.
    mean, size = state.mean, np.inf
    rows = design.rough if state.rough and design.rough is not None else design.rows
    for _ in range(MAX_SETTLING):
        new, _, skipped = term.propose_all(f, s, sites, 0.0)
        slope = new.nu - new.tau * f
        gradient = rows.T @ slope.astype(rows.dtype) - mean
        step = state.cov @ gradient
        last, size = size, float(np.sqrt(max(gradient @ step, 0.0)))
        if skipped or not size < last:
            break
        mean = mean + step
        f = design.offset + design.rows @ mean
        sites = Sites(sites.tau, slope + sites.tau * f, sites.logc)
        if size < least:
            break
    return f, sites


class Functions(NamedTuple):
    """The posterior of a latent function: mean K a, covariance (prior) - K B K; no K, with its points, is inverted."""

    dual: np.ndarray  # (n,): a
    cov: np.ndarray  # (n, n): B

    def latent(self, K: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and variance of f at points, by prior variances and covariances with those of the fit."""
        explained = np.einsum("ni,ni->n", K @ self.cov, K)
        return K @ self.dual, np.maximum(prior - explained, 0.0)

    def joint(self, K: np.ndarray, prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Posterior mean and covariance of f at points, as `latent`, for their prior covariance."""
        return K @ self.dual, prior - K @ self.cov @ K.T
