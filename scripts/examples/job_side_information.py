"""
Items that nobody has rated
===========================

What their features say of them.
"""

import numpy as np

from tensorcep import CollectiveMatrixFactorization, metrics

rng = np.random.default_rng(0)
u, v, w = rng.normal(size=(60, 2)), rng.normal(size=(40, 2)), rng.normal(size=(12, 2))
ratings, features = u @ v.T + 0.3 * rng.normal(size=(60, 40)), v @ w.T + 0.3 * rng.normal(size=(40, 12))
seen = np.where(np.arange(40) < 35, ratings, np.nan)  # five new items
relations = [("users", "items", "gaussian"), ("items", "features", "gaussian")]
model = CollectiveMatrixFactorization(relations, 4, max_iter=200, random_state=0).fit([seen, features])
cold = model.reconstruct(0)[:, 35:]
print(f"RMSE of the new items {metrics.rmse(ratings[:, 35:].ravel(), cold.ravel()):.2f}; sd {ratings.std():.2f}")
