"""Sweeps of expectation propagation over sites: in Python, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from tensorcep.core.checks import check_matrix, fail_value
from tensorcep.core.compile import LOGLIK_SIGNATURE, TILTED_SIGNATURE, address_of, call_at, kernel
from tensorcep.ep.linear_gaussian import DesignRows
from tensorcep.ep.projections import Tilted, power_tilted, project
from tensorcep.ep.sites import Sites, cavity, damp, log_integral, site_change, site_from_tilted
from tensorcep.likelihoods.base import Likelihood

# Steps towards the mode of the posterior, where parallel EP starts, and the relative change of the objective that ends
# them: a start need not be exact.
MAX_STEPS = 50
TOL = 1e-5

Change = tuple[float, int]  # the largest undamped change of a site, and how many sites were left as they were


class Terms:
    """Terms of rank 1 that are a likelihood of the package, of n latent values, whatever these are functions of."""

    # A `power` of each is refined at a time; a `rule` ("quadrature", "table") projects in the Wasserstein distance.
    def __init__(self, record: Likelihood, y: Any, theta: Any, power: float = 1.0, rule: str | None = None):
        part = "tilted" if power == 1.0 else "loglik"
        if getattr(record, part) is None:
            fail_value(f"EP with power={power:g} needs {part}, which the likelihood {record.name!r} does not have.")
        y = record.check_y(y)
        numbers = np.asarray(record.default_theta if theta is None else theta, dtype=np.float64)
        numbers = np.full(len(y), float(numbers)) if numbers.ndim == 0 else numbers
        numbers = check_matrix("theta", numbers[:, None] if numbers.ndim == 1 else numbers)
        if len(numbers) != len(y):
            must = f"be one number, or hold a row for each of the {len(y)} observations"
            fail_value(f"theta must {must}; got {len(numbers)}.")
        signature = TILTED_SIGNATURE if power == 1.0 else LOGLIK_SIGNATURE
        self.record, self._rule = record, rule
        self.term = Term(y, numbers.ravel(), address_of(getattr(record, part), signature), power)
        m, v, logz, alpha, beta = (np.empty(len(y)) for _ in range(5))
        self.work = SweepBuffers(m, v, logz, alpha, beta, np.empty(0), np.empty(1), np.empty(1), np.empty((4, 1)))

    def start_sites(self, sites: Sites | None) -> Sites:
        """Return sites of 1, or checked copies of the given ones."""
        n = self.term.y.size
        if sites is None:
            return Sites(np.zeros(n), np.zeros(n), np.zeros(n))
        if any(np.shape(part) != (n,) for part in sites):
            fail_value(f"sites must hold {n} numbers each; got shapes {[np.shape(part) for part in sites]}.")
        return Sites(*(np.array(part, dtype=np.float64) for part in sites))

    def moments(self, f: np.ndarray, s: np.ndarray, sites: Sites, first: int = 0, noise: Any = None) -> None:
        """Write the cavities, and logz, alpha and beta there, to `work`: of the terms from `first` on, as many as f."""
        n, work, v = f.size, self.work, None
        cavities(first, first + n, f, s, self.term, sites, work)
        if noise is not None:  # variances of Gaussian noise with which f is seen before the likelihood
            v = work.v[:n].copy()
            work.v[:n] = np.where(v >= 0.0, v + noise, v)
        block_moments(self.term, first, first + n, work)
        if v is not None:
            work.v[:n] = v
        if self._rule is not None:
            y, theta = (a[first : first + n] for a in (self.term.y, self.term.theta))
            tilted = Tilted(self.record, y, theta, work.m[:n], work.v[:n])
            work.beta[:n] = project(tilted, work.alpha[:n], work.beta[:n], self._rule)

    def refine(self, i: int, f: np.ndarray, s: np.ndarray, sites: Sites, damping: float, noise: Any = None) -> Change:
        """Refine in place as many sites as f from i on, for its means and variances; `noise` as in `moments`."""
        self.moments(f, s, sites, i, noise)
        return renew(i, i + f.size, f, s, self.term, sites, sites, damping, self.work)

    def propose_all(self, f: np.ndarray, s: np.ndarray, sites: Sites, damping: float) -> tuple[Sites, float, int]:
        """Return new sites, all from one posterior, the largest change and how many were left out."""
        self.moments(f, s, sites)
        new = Sites(*(np.empty_like(part) for part in sites))
        change, skipped = renew(0, f.size, f, s, self.term, sites, new, damping, self.work)
        return new, change, skipped


class CompiledTerm(Terms):
    """The likelihood terms of all entries, of linear functions of one vector."""

    def __init__(self, record: Likelihood, y: Any, theta: Any, design: DesignRows, power: float, rule: str | None):
        if design.vector:
            fail_value(f"X must have two dimensions for the likelihood {record.name!r}, whose terms have rank 1.")
        super().__init__(record, y, theta, power, rule)
        self._design = design
        self.work = self.work._replace(h=np.empty(design.rows.shape[1]))

    def sites_at_mode(self) -> Sites | None:
        """Sites of Laplace's approximation near the mode, flat where it is not concave; None without a `loglik`."""
        record, y, theta, design = self.record, self.term.y, self.term.theta, self._design
        if record.loglik is None:
            return None
        offset, rows = design.offset, design.rows if design.rough is None else design.rough
        value, d1, d2 = np.empty((3, y.size))

        def loss(u: np.ndarray) -> tuple[float, np.ndarray]:
            record.loglik(y, offset + rows @ u.astype(rows.dtype), theta, value, d1, d2)
            return float(0.5 * (u @ u) - value.sum()), np.asarray(u - rows.T @ d1.astype(rows.dtype))

        options = {"maxiter": MAX_STEPS, "ftol": TOL}
        u = minimize(loss, np.zeros(rows.shape[1]), jac=True, method="L-BFGS-B", options=options).x
        f = offset + design.rows @ u
        record.loglik(y, f, theta, value, d1, d2)
        tau = np.maximum(-d2, 0.0)
        return Sites(tau, d1 + tau * f, np.zeros(y.size))

    def sweep(self, sites: Sites, mean: np.ndarray, cov: np.ndarray, damping: float) -> Change:
        """Refine the sites in order, in place; return the largest change and how many were left out."""
        if self._rule is None:
            return sequential_sweep(self._rows, self.term, sites, mean, cov, damping, self.work)
        worst, left_out = 0.0, 0  # with a projection that is no kernel
        start, column, value, offset = self._rows
        for i in range(len(offset)):
            at = slice(start[i], start[i + 1])
            h = value[at] @ cov[column[at]]
            f, s = offset[i] + value[at] @ mean[column[at]], h[column[at]] @ value[at]
            tau, nu = sites.tau[i], sites.nu[i]
            change, skipped = self.refine(i, np.array([f]), np.array([s]), sites, damping)
            worst, left_out = max(worst, change), left_out + skipped
            dtau, dnu = sites.tau[i] - tau, sites.nu[i] - nu
            mean += (dnu - dtau * f) / (1.0 + dtau * s) * h
            cov -= dtau / (1.0 + dtau * s) * np.outer(h, h)
        return worst, left_out

    @cached_property
    def _rows(self) -> DesignInRows:
        rows = sparse.csr_matrix(self._design.rows)
        return DesignInRows(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data, self._design.offset)


# Compiled sweeps of Gaussian EP over sites on f_i = offset_i + a_i'u, u ~ N(0, I) a priori.

# With a power below 1, the part of a latent value's precision that a whole step must leave.
LEAST_PRECISION = 0.1


class DesignInRows(NamedTuple):
    """The rows a_i in compressed form (those of a dense matrix hold every column), and the offsets of f."""

    start: np.ndarray
    column: np.ndarray
    value: np.ndarray
    offset: np.ndarray


class Term(NamedTuple):
    """Observations, parameters (as many for every entry), and the address of `tilted`, or of `loglik` for a power."""

    y: np.ndarray
    theta: np.ndarray
    address: int
    power: float


class SweepBuffers(NamedTuple):
    """Buffers: five numbers per entry of a block, h (d,), one entry's f and s, and the (4, 1) of `power_tilted`."""

    m: np.ndarray
    v: np.ndarray
    logz: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    h: np.ndarray
    f: np.ndarray
    s: np.ndarray
    one: np.ndarray


@kernel
def block_moments(term, first, last, work):
    """Write logz, alpha and beta of the terms first..last at the cavities in work.m, work.v."""
    n = term.y.shape[0]
    size = last - first
    p = term.theta.shape[0] // n
    y, theta = term.y[first:last], term.theta[p * first : p * last]
    if term.power == 1.0:
        m, v, logz, alpha, beta = work.m[:size], work.v[:size], work.logz[:size], work.alpha[:size], work.beta[:size]
        call_at(term.address, y, m, v, theta, logz, alpha, beta)
        return
    for j in range(size):
        y_j, theta_j = y[j : j + 1], theta[p * j : p * (j + 1)]
        found = power_tilted(term.address, y_j, work.m[j], work.v[j], theta_j, term.power, work.one)
        work.logz[j], work.alpha[j], work.beta[j] = found


@kernel
def cavities(first, last, f, s, term, old, work):
    """Write the cavities of sites first..last to work.m, work.v: v is -1 where there is none, 0 where f is known."""
    for j in range(last - first):
        m, v = cavity(f[j], s[j], old.tau[first + j], old.nu[first + j], term.power)
        good = 0.0 <= v < np.inf and abs(m) < np.inf
        work.m[j], work.v[j] = (m, v) if good else (0.0, -1.0)


@kernel
def renew(first, last, f, s, term, old, new, damping, work):
    """Write the damped new sites first..last from the cavities and the moments in `work`."""
    # `f` and `s` are mean and variance of each latent value under the posterior. Gives the largest undamped change and
    # the number of sites left as they were, because the cavity or the new posterior would not be a Gaussian.
    # With a power P, (cavity x term^P) gives the site to the power P. For P < 1 the whole step may then leave no
    # Gaussian; the fraction P of it is the new posterior itself, which is one.
    # Source: Minka (2008), eqs 22-33; Minka (2004), Power EP, sec. 3.
    power, worst, skipped = term.power, 0.0, 0
    for j in range(last - first):
        i = first + j
        m, v, logz, alpha, beta = work.m[j], work.v[j], work.logz[j], work.alpha[j], work.beta[j]
        if not (v >= 0.0 and v * beta < 1.0 and abs(alpha) < np.inf and abs(logz) < np.inf):
            new.tau[i], new.nu[i], new.logc[i] = old.tau[i], old.nu[i], old.logc[i]
            skipped += 1
            continue
        tau, nu = site_from_tilted(m, v, alpha, beta)
        dtau, dnu = tau / power - old.tau[i], nu / power - old.nu[i]
        worst = max(worst, site_change(f[j], s[j], dtau, dnu))
        if 1.0 + dtau * s[j] < LEAST_PRECISION:
            dtau, dnu = min(power, 1.0) * dtau, min(power, 1.0) * dnu
        new.tau[i] = damp(old.tau[i], old.tau[i] + dtau, damping)
        new.nu[i] = damp(old.nu[i], old.nu[i] + dnu, damping)
        new.logc[i] = (logz - log_integral(m, v, power * new.tau[i], power * new.nu[i])) / power
    return worst, skipped


@kernel
def sequential_sweep(rows, term, sites, mean, cov, damping, work):
    """Refine every site once, in order, and the posterior N(mean, cov) of u with each; O(n d^2)."""
    # Gives what `renew` does. Source: Minka (2008), eqs 44 and 45, for the change of a site's natural parameters.
    d = mean.shape[0]
    h, f, s = work.h, work.f, work.s
    worst, skipped = 0.0, 0
    for i in range(term.y.shape[0]):
        h[:] = 0.0
        f[0], s[0] = rows.offset[i], 0.0
        for at in range(rows.start[i], rows.start[i + 1]):
            column, x = rows.column[at], rows.value[at]
            f[0] += x * mean[column]
            for b in range(d):
                h[b] += x * cov[column, b]
        for at in range(rows.start[i], rows.start[i + 1]):
            s[0] += rows.value[at] * h[rows.column[at]]
        tau, nu = sites.tau[i], sites.nu[i]
        cavities(i, i + 1, f, s, term, sites, work)
        block_moments(term, i, i + 1, work)
        change, left_out = renew(i, i + 1, f, s, term, sites, sites, damping, work)
        worst, skipped = max(worst, change), skipped + left_out
        dtau, dnu = sites.tau[i] - tau, sites.nu[i] - nu
        if dtau == 0.0 and dnu == 0.0:
            continue
        shrink = dtau / (1.0 + dtau * s[0])
        shift = (dnu - dtau * f[0]) / (1.0 + dtau * s[0])
        for a in range(d):
            mean[a] += shift * h[a]
            c = shrink * h[a]
            for b in range(d):
                cov[a, b] -= c * h[b]
    return worst, skipped


# Terms of Gaussian EP that are Python functions, of any rank k: for prototypes, and for terms of several values.
#
# The algebra of `tensorcep.ep.sites` with k x k matrices; with k = 1 it gives the same numbers.


# One site: precision (k, k), natural mean (k,), log scale; its undamped change, and whether it was left as it was.
Proposal = tuple[np.ndarray, np.ndarray, float, float, bool]


class FunctionTerm:
    """Terms given as ``tilted(y_i, m, V) -> (logz, alpha, beta)``."""

    def __init__(self, tilted: Callable[..., Any], y: Sequence[Any], design: DesignRows, power: float):
        rows = design.rows.toarray() if sparse.issparse(design.rows) else design.rows
        self._tilted, self._y, self._power, self._k, self._vector = tilted, y, power, design.k, design.vector
        self._rows = rows.reshape(-1, design.k, rows.shape[1])
        self._offset = design.offset.reshape(-1, design.k)

    def start_sites(self, sites: Sites | None) -> Sites:
        """Return sites of 1, or checked copies of the given ones."""
        n, k = self._offset.shape
        shapes = [(n, k, k), (n, k), (n,)] if self._vector else [(n,)] * 3
        if sites is None:
            return Sites(*(np.zeros(shape) for shape in shapes))
        if [np.shape(part) for part in sites] != shapes:
            fail_value(f"sites must have shapes {shapes}; got {[np.shape(part) for part in sites]}.")
        return Sites(*(np.array(part, dtype=np.float64) for part in sites))

    def sweep(self, sites: Sites, mean: np.ndarray, cov: np.ndarray, damping: float) -> Change:
        """Refine sites in order, in place; the largest change, and how many were left out (Minka 2008, eqs 95-116)."""
        old = self._as_blocks(sites)
        worst, skipped, eye = 0.0, 0, np.eye(self._k)
        for i, rows in enumerate(self._rows):
            h = rows @ cov
            f, s = self._offset[i] + rows @ mean, h @ rows.T
            tau, nu, logc, change, left_out = self._propose(i, f, s, old, damping)
            dtau, dnu = tau - old.tau[i], nu - old.nu[i]
            old.tau[i], old.nu[i], old.logc[i] = tau, nu, logc
            worst, skipped = max(worst, change), skipped + left_out
            mean += h.T @ np.linalg.solve(eye + dtau @ s, dnu - dtau @ f)
            cov -= h.T @ np.linalg.solve(eye + dtau @ s, dtau @ h)
        return worst, skipped

    def propose_all(self, f: np.ndarray, s: np.ndarray, sites: Sites, damping: float) -> tuple[Sites, float, int]:
        """Return new sites, all from one posterior, the largest change and how many were left out."""
        new = Sites(*(part.copy() for part in sites))
        blocks, k = self._as_blocks(new), self._k
        f, s = f.reshape(-1, k), s.reshape(-1, k, k)
        worst, skipped = 0.0, 0
        for i in range(len(self._rows)):
            tau, nu, logc, change, left_out = self._propose(i, f[i], s[i], blocks, damping)
            blocks.tau[i], blocks.nu[i], blocks.logc[i] = tau, nu, logc
            worst, skipped = max(worst, change), skipped + left_out
        return new, worst, skipped

    def _as_blocks(self, sites: Sites) -> Sites:
        """The same memory as (n, k, k), (n, k) and (n,)."""
        return Sites(sites.tau.reshape(-1, self._k, self._k), sites.nu.reshape(-1, self._k), sites.logc)

    def _propose(self, i: int, f: np.ndarray, s: np.ndarray, old: Sites, damping: float) -> Proposal:
        """The damped new site, or the old one where the cavity or the new posterior would not be a Gaussian."""
        tau, nu = old.tau[i], old.nu[i]
        left_out = tau.copy(), nu.copy(), float(old.logc[i]), 0.0, True
        power, eye = self._power, np.eye(self._k)
        m = np.linalg.solve(eye - power * s @ tau, f - power * s @ nu)
        v = _symmetric(np.linalg.solve(eye - power * s @ tau, s))
        if not _is_positive(v):
            return left_out
        logz, alpha, beta = self._moments(i, m, v)
        if not (np.isfinite(logz) and np.isfinite(alpha).all() and _is_positive(v - v @ beta @ v)):
            return left_out
        site_tau = _symmetric(np.linalg.solve((eye - v @ beta).T, beta.T).T)
        site_nu = alpha + site_tau @ (m + v @ alpha)
        dtau, dnu = site_tau / power - tau, site_nu / power - nu
        values, axes = np.linalg.eigh(s)  # `ep.sites.site_change` along the principal axes of s
        root = axes * np.sqrt(np.maximum(values, 0.0))
        precision = np.linalg.eigvalsh(root.T @ dtau @ root)
        change = float(max(np.abs(precision).max(), np.abs(root.T @ (dnu - dtau @ f)).max()))
        if 1.0 + precision.min() < LEAST_PRECISION:
            dtau, dnu = min(power, 1.0) * dtau, min(power, 1.0) * dnu
        new_tau, new_nu = tau + (1.0 - damping) * dtau, nu + (1.0 - damping) * dnu
        # log of the integral of N(f; m, v) exp(nu'f - f'tau f / 2)
        t, n = power * new_tau, power * new_nu
        pull, grown = n - t @ m, eye + v @ t
        quadratic = pull @ np.linalg.solve(grown, v @ pull)
        integral = float(n @ m - 0.5 * m @ t @ m + 0.5 * quadratic - 0.5 * np.linalg.slogdet(grown)[1])
        return new_tau, new_nu, (logz - integral) / power, change, False

    def _moments(self, i: int, m: np.ndarray, v: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        if not self._vector:
            logz, alpha, beta = self._tilted(self._y[i], float(m[0]), float(v[0, 0]))
            return float(logz), np.array([alpha], dtype=np.float64), np.array([[beta]], dtype=np.float64)
        logz, alpha, beta = self._tilted(self._y[i], m, v)
        alpha, beta = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
        if alpha.shape != m.shape or beta.shape != v.shape:
            got = alpha.shape, beta.shape
            fail_value(f"tilted must return alpha of shape {m.shape} and beta {v.shape}; got {got}.")
        return float(logz), alpha, _symmetric(beta)


def _symmetric(a: np.ndarray) -> np.ndarray:
    return 0.5 * (a + a.T)


def _is_positive(a: np.ndarray) -> bool:
    return bool(np.isfinite(a).all() and np.linalg.eigvalsh(a)[0] > 0.0)
