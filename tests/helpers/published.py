"""The published score of a fit by its moments."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_auc_score

RANKS = (3, 5, 8, 10)


SHAPES = {"alog": (200, 100, 200), "enron": (203, 203, 200)}


def published_score(name, rows, y, state):
    """RMSE of the product of means; AUC of the mean over a spread made of the covariances alone, as published."""
    f = state.rows.mean[rows].prod(axis=1).sum(axis=1)
    if name == "alog":
        return np.sqrt(np.mean((y - f) ** 2))
    R = state.rows.mean.shape[1]
    diagonal = np.arange(R) * (np.arange(R) + 3) // 2
    product = state.rows.cov[rows].prod(axis=1)
    spread = 2 * product.sum(axis=1) - product[:, diagonal].sum(axis=1)
    return roc_auc_score(y, f / np.sqrt(1 + spread))
