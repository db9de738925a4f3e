"""Three points in the plane and the Bayes point between them, Minka (2001), figure 3.

EP runs on `GaussianEP`; averages of draws from the prior and the support vector machine are the paper's baselines.
"""

from __future__ import annotations

import numpy as np
from sklearn.svm import SVC

from tensorcep.ep.gaussian import GaussianEP

# The third feature is the constant.
X = np.array([[1.0, 2.0, 1.0], [-1.5, 0.5, 1.0], [0.5, -1.0, 1.0]])
Y = np.array([1, 0, 1])
SWEEPS = 8
DRAWS = 1_000_000
# Operations of EP for a site: the matrix products and the update of the covariance, and the moments of the step.
SITE_FLOPS = 5 * X.shape[1] ** 2 + 60
DRAW_FLOPS = 2 * X.size

Path2 = list[tuple[float, float]]  # of (operations, error)


def bayes_point() -> np.ndarray:
    """E[w | every point on its side], w ~ N(0, I): the mean of a normal vector cut to an orthant.

    E[f_j] = sum_k C_jk phi(0; C_kk) P(the other two > 0 | f_k = 0) / P(all > 0), Tallis (1961); orthant probabilities
    of two and three normal variables of mean 0 follow from the angles between them.
    """
    A = np.where(Y == 1, 1.0, -1.0)[:, None] * X
    C = A @ A.T
    sd = np.sqrt(np.diag(C))
    pairs = np.triu_indices(3, 1)
    everything = 0.125 + np.arcsin((C / np.outer(sd, sd))[pairs]).sum() / (4.0 * np.pi)
    weights = np.empty(3)
    for k in range(3):
        i, j = (other for other in range(3) if other != k)
        cut = C - np.outer(C[k], C[k]) / C[k, k]
        pair = 0.25 + np.arcsin(cut[i, j] / np.sqrt(cut[i, i] * cut[j, j])) / (2.0 * np.pi)
        weights[k] = pair / (everything * sd[k] * np.sqrt(2.0 * np.pi))
    return A.T @ weights  # A' C^-1 C weights


def _unit(w: np.ndarray) -> np.ndarray:
    return w / np.linalg.norm(w)


def ep_points() -> list[np.ndarray]:
    """The weights after each sweep of EP; the first is ADF."""
    return [GaussianEP(max_iter=sweep, tol=0.0).fit(X, Y, "step").mean for sweep in range(1, SWEEPS + 1)]


def svm_point() -> np.ndarray:
    """The weights of the support vector machine without slack, and its offset."""
    svm = SVC(kernel="linear", C=1e6).fit(X[:, :2], Y)
    return np.append(svm.coef_[0], svm.intercept_[0])


def toy_errors() -> dict[str, Path2]:
    """Distance of unit weight vectors from the Bayes point, and its cost; one point for the support vector machine."""
    truth = _unit(bayes_point())
    w = np.random.default_rng(0).standard_normal((DRAWS, 3))
    separates = ((X @ w.T > 0.0) == (Y[:, None] == 1)).all(axis=0)
    total = np.cumsum(w * separates[:, None], axis=0)
    first = int(np.argmax(separates)) + 1
    counts = [c for c in np.geomspace(10, DRAWS, 16).astype(int) if c >= first]

    def error(found: np.ndarray) -> float:
        return float(np.linalg.norm(_unit(found) - truth))

    return {
        "ep": [(float((k + 1) * len(Y) * SITE_FLOPS), error(point)) for k, point in enumerate(ep_points())],
        "sampling": [(float(c * DRAW_FLOPS), error(total[c - 1])) for c in counts],
        "svm": [(float(DRAW_FLOPS), error(svm_point()))],
    }
