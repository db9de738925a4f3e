"""Where parallel EP starts: the sites of Laplace's approximation, near the mode of the posterior."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from tensorcep.ep.design import Design
from tensorcep.kernels.sites import Sites
from tensorcep.likelihoods.record import Likelihood

# Steps towards the mode, and the relative change of the objective that ends them: a start need not be exact.
MAX_STEPS = 50
TOL = 1e-5


def sites_at_mode(record: Likelihood, y: np.ndarray, theta: np.ndarray, design: Design) -> Sites:
    """Gaussians in f of the log likelihood's slope and curvature near the mode of u; flat where it is not concave."""
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
