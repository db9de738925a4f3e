"""Terms of Gaussian EP that are Python functions, of any rank k: for prototypes, and for terms of several values.

The algebra of `tensorcep.ep.sites` with k x k matrices; with k = 1 it gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from tensorcep.core.checks import fail_value
from tensorcep.ep.linear_gaussian import DesignRows
from tensorcep.ep.sites import Sites
from tensorcep.ep.sweep import LEAST_PRECISION


class _Block(NamedTuple):
    """One site: precision (k, k), natural mean (k,), log scale, undamped change, and whether it was left as it was."""

    tau: np.ndarray
    nu: np.ndarray
    logc: float
    change: float
    skipped: bool


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

    def sweep(self, sites: Sites, mean: np.ndarray, cov: np.ndarray, damping: float) -> tuple[float, int]:
        """Refine the sites in order, in place; return the largest change and how many were left out.

        Source: Minka (2008), eqs 95-116.
        """
        old = self._as_blocks(sites)
        worst, skipped, eye = 0.0, 0, np.eye(self._k)
        for i, rows in enumerate(self._rows):
            h = rows @ cov
            f, s = self._offset[i] + rows @ mean, h @ rows.T
            new = self._propose(i, f, s, old.tau[i], old.nu[i], float(old.logc[i]), damping)
            dtau, dnu = new.tau - old.tau[i], new.nu - old.nu[i]
            old.tau[i], old.nu[i], old.logc[i] = new.tau, new.nu, new.logc
            worst, skipped = max(worst, new.change), skipped + new.skipped
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
            site = self._propose(i, f[i], s[i], blocks.tau[i], blocks.nu[i], float(blocks.logc[i]), damping)
            blocks.tau[i], blocks.nu[i], blocks.logc[i] = site.tau, site.nu, site.logc
            worst, skipped = max(worst, site.change), skipped + site.skipped
        return new, worst, skipped

    def _as_blocks(self, sites: Sites) -> Sites:
        """The same memory as (n, k, k), (n, k) and (n,)."""
        return Sites(sites.tau.reshape(-1, self._k, self._k), sites.nu.reshape(-1, self._k), sites.logc)

    def _propose(
        self, i: int, f: np.ndarray, s: np.ndarray, tau: np.ndarray, nu: np.ndarray, logc: float, damping: float
    ) -> _Block:
        """The damped new site, or the old one where the cavity or the new posterior would not be a Gaussian."""
        left_out = _Block(tau.copy(), nu.copy(), logc, 0.0, True)
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
        change, least = _change(f, s, dtau, dnu)
        if least < LEAST_PRECISION:
            dtau, dnu = min(power, 1.0) * dtau, min(power, 1.0) * dnu
        new_tau, new_nu = tau + (1.0 - damping) * dtau, nu + (1.0 - damping) * dnu
        scale = (logz - _log_integral(m, v, power * new_tau, power * new_nu)) / power
        return _Block(new_tau, new_nu, scale, change, False)

    def _moments(self, i: int, m: np.ndarray, v: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        if not self._vector:
            logz, alpha, beta = self._tilted(self._y[i], float(m[0]), float(v[0, 0]))
            return float(logz), np.array([alpha], dtype=np.float64), np.array([[beta]], dtype=np.float64)
        logz, alpha, beta = self._tilted(self._y[i], m, v)
        alpha, beta = np.asarray(alpha, dtype=np.float64), np.asarray(beta, dtype=np.float64)
        if alpha.shape != m.shape or beta.shape != v.shape:
            fail_value(
                f"tilted must return alpha of shape {m.shape} and beta {v.shape}; got {alpha.shape, beta.shape}."
            )
        return float(logz), alpha, _symmetric(beta)


def _symmetric(a: np.ndarray) -> np.ndarray:
    return 0.5 * (a + a.T)


def _is_positive(a: np.ndarray) -> bool:
    return bool(np.isfinite(a).all() and np.linalg.eigvalsh(a)[0] > 0.0)


def _log_integral(m: np.ndarray, v: np.ndarray, tau: np.ndarray, nu: np.ndarray) -> float:
    """Log of the integral of N(f; m, v) exp(nu'f - f'tau f / 2)."""
    pull, grown = nu - tau @ m, np.eye(len(m)) + v @ tau
    quadratic = pull @ np.linalg.solve(grown, v @ pull)
    return float(nu @ m - 0.5 * m @ tau @ m + 0.5 * quadratic - 0.5 * np.linalg.slogdet(grown)[1])


def _change(f: np.ndarray, s: np.ndarray, dtau: np.ndarray, dnu: np.ndarray) -> tuple[float, float]:
    """As `ep.sites.site_change`, along the principal axes of s; and the least part of a precision left."""
    values, axes = np.linalg.eigh(s)
    root = axes * np.sqrt(np.maximum(values, 0.0))
    precision = np.linalg.eigvalsh(root.T @ dtau @ root)
    change = max(np.abs(precision).max(), np.abs(root.T @ (dnu - dtau @ f)).max())
    return float(change), float(1.0 + precision.min())
