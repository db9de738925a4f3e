"""Anderson's acceleration of a fixed-point iteration of sites."""

from __future__ import annotations

import numpy as np

from tensorcep.ep.sites import Sites
from tensorcep.gaussian_process.posterior import Posterior

# Steps before the present one that take part, and the relative size below which a combination of them says nothing.
DEPTH, RCOND = 3, 1e-10
# Changes, in posterior standard deviations, from which on steps are combined.
NEAR = 0.5


class Mixer:
    """The last steps; `mix` combines them into one that leaves the least change, if changes were linear.

    Source: Anderson (1965), Iterative procedures for nonlinear integral equations. Residuals are in units of the
    posterior, as the change is that the tolerance is about.
    """

    def __init__(self) -> None:
        self._points: list[np.ndarray] = []
        self._residuals: list[np.ndarray] = []

    def mix(self, posterior: Posterior, old: Sites, new: Sites, change: float) -> Sites | None:
        """Sites in place of the new ones; None where steps so far are too few or too long."""
        point, residual = np.concatenate(old[:2]), np.concatenate(new[:2]) - np.concatenate(old[:2])
        points, residuals = self._points, self._residuals
        self._points, self._residuals = [*points, point][-DEPTH:], [*residuals, residual][-DEPTH:]
        if change > NEAR or not points:
            return None
        unit = np.concatenate([posterior.s, np.sqrt(np.maximum(posterior.s, 0.0))])
        moved = np.stack([residual - before for before in residuals], axis=1)
        went = np.stack([point - before for before in points], axis=1)
        share = np.linalg.lstsq(unit[:, None] * moved, unit * residual, rcond=RCOND)[0]
        tau, nu = np.split(point + residual - (went + moved) @ share, 2)
        worse = (tau < 0.0).any() and (new.tau >= 0.0).all()  # sites of positive precision are kept so
        return None if worse or not (np.isfinite(tau).all() and np.isfinite(nu).all()) else Sites(tau, nu, new.logc)
