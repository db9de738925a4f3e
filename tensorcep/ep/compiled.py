"""Terms of Gaussian EP that are likelihoods of the package: rank 1, swept by compiled kernels."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from tensorcep.core.checks import check_matrix, fail_value
from tensorcep.core.jit import LOGLIK_SIGNATURE, TILTED_SIGNATURE, address_of
from tensorcep.ep.design import Design
from tensorcep.ep.mode import sites_at_mode
from tensorcep.ep.sweep import Rows, Term, Work, block_moments, cavities, renew, sequential_sweep
from tensorcep.ep.wasserstein import Tilted, project
from tensorcep.kernels.sites import Sites
from tensorcep.likelihoods.record import Likelihood


class Terms:
    """Likelihood terms of n latent values, whatever these are functions of.

    Parameters
    ----------
    power : float
        The power of a term that is refined at a time.
    rule : {"quadrature", "table"}, optional
        Project in the Wasserstein distance (quantile propagation), by this rule; otherwise by moments.
    """

    def __init__(self, record: Likelihood, y: Any, theta: Any, power: float = 1.0, rule: str | None = None):
        part = "tilted" if power == 1.0 else "loglik"
        if getattr(record, part) is None:
            fail_value(f"EP with power={power:g} needs {part}, which the likelihood {record.name!r} does not have.")
        y = record.check_y(y)
        theta = _parameters(record.default_theta if theta is None else theta, len(y))
        signature = TILTED_SIGNATURE if power == 1.0 else LOGLIK_SIGNATURE
        self.record, self._rule = record, rule
        self.term = Term(y, theta, address_of(getattr(record, part), signature), power)
        m, v, logz, alpha, beta = (np.empty(len(y)) for _ in range(5))
        self.work = Work(m, v, logz, alpha, beta, np.empty(0), np.empty(1), np.empty(1), np.empty((4, 1)))

    def start_sites(self, sites: Sites | None) -> Sites:
        """Return sites of 1, or checked copies of the given ones."""
        n = self.term.y.size
        if sites is None:
            return Sites(np.zeros(n), np.zeros(n), np.zeros(n))
        if any(np.shape(part) != (n,) for part in sites):
            fail_value(f"sites must hold {n} numbers each; got shapes {[np.shape(part) for part in sites]}.")
        return Sites(*(np.array(part, dtype=np.float64) for part in sites))

    def moments(self, f: np.ndarray, s: np.ndarray, sites: Sites, first: int = 0) -> None:
        """Write the cavities, and logz, alpha and beta there, to `work`: of the terms from `first` on, as many as f."""
        n, work = f.size, self.work
        cavities(first, first + n, f, s, self.term, sites, work)
        block_moments(self.term, first, first + n, work)
        if self._rule is not None:
            y, theta = (a[first : first + n] for a in (self.term.y, self.term.theta))
            tilted = Tilted(self.record, y, theta, work.m[:n], work.v[:n])
            work.beta[:n] = project(tilted, work.alpha[:n], work.beta[:n], self._rule)

    def refine(self, i: int, f: np.ndarray, s: np.ndarray, sites: Sites, damping: float) -> tuple[float, int]:
        """Refine site i in place, for mean (1,) and variance (1,) of its value; its change, and 1 if left out."""
        self.moments(f, s, sites, i)
        change, skipped = renew(i, i + 1, f, s, self.term, sites, sites, damping, self.work)
        return float(change), int(skipped)

    def renew_with_noise(
        self, first: int, f: np.ndarray, s: np.ndarray, sites: Sites, damping: float, noise: np.ndarray
    ) -> tuple[float, int]:
        """Refine in place sites of f that are seen with Gaussian noise of these variances before the likelihood."""
        n, work = f.size, self.work
        cavities(first, first + n, f, s, self.term, sites, work)
        v = work.v[:n].copy()
        work.v[:n] = np.where(v >= 0.0, v + noise, v)
        block_moments(self.term, first, first + n, work)
        work.v[:n] = v
        change, skipped = renew(first, first + n, f, s, self.term, sites, sites, damping, work)
        return float(change), int(skipped)

    def propose_all(self, f: np.ndarray, s: np.ndarray, sites: Sites, damping: float) -> tuple[Sites, float, int]:
        """Return new sites, all from one posterior, the largest change and how many were left out."""
        self.moments(f, s, sites)
        new = Sites(*(np.empty_like(part) for part in sites))
        change, skipped = renew(0, f.size, f, s, self.term, sites, new, damping, self.work)
        return new, float(change), int(skipped)


class CompiledTerm(Terms):
    """The likelihood terms of all entries, of linear functions of one vector."""

    def __init__(self, record: Likelihood, y: Any, theta: Any, design: Design, power: float, rule: str | None = None):
        if design.vector:
            fail_value(f"X must have two dimensions for the likelihood {record.name!r}, whose terms have rank 1.")
        super().__init__(record, y, theta, power, rule)
        self._design = design
        self.work = self.work._replace(h=np.empty(design.rows.shape[1]))

    def sites_at_mode(self) -> Sites | None:
        """Return sites that are right near the mode of the posterior; None for a likelihood without slopes."""
        if self.record.loglik is None:
            return None
        return sites_at_mode(self.record, self.term.y, self.term.theta, self._design)

    def sweep(self, sites: Sites, mean: np.ndarray, cov: np.ndarray, damping: float) -> tuple[float, int]:
        """Refine the sites in order, in place; return the largest change and how many were left out."""
        if self._rule is not None:
            return self._projected_sweep(sites, mean, cov, damping)
        change, skipped = sequential_sweep(self._rows, self.term, sites, mean, cov, damping, self.work)
        return float(change), int(skipped)

    @cached_property
    def _rows(self) -> Rows:
        rows = self._design.rows
        if not sparse.issparse(rows):
            rows = sparse.csr_matrix(rows)
        return Rows(rows.indptr.astype(np.int64), rows.indices.astype(np.int64), rows.data, self._design.offset)

    def _projected_sweep(self, sites: Sites, mean: np.ndarray, cov: np.ndarray, damping: float) -> tuple[float, int]:
        """`sweep` with a projection that is no kernel."""
        worst, left_out = 0.0, 0
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


def _parameters(theta: Any, n: int) -> np.ndarray:
    """Parameters as one flat array, those of an entry side by side."""
    array = np.asarray(theta, dtype=np.float64)
    if array.ndim == 0:
        array = np.full(n, float(array))
    if array.ndim == 1:
        array = array[:, None]
    array = check_matrix("theta", array)
    if array.shape[0] != n:
        fail_value(f"theta must be one number, or hold a row for each of the {n} observations; got {array.shape[0]}.")
    return array.ravel()
