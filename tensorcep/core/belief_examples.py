"""Examples of what methods return, by the names of the records; they are part of the docstrings."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "Posterior": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> posterior = CPRegressor(1, method="vmp", interactions="cp", random_state=0).fit(tensor).posterior_
>>> posterior.shape, posterior.rank, posterior.eta.shape
((8, 6, 4), 1, (18, 1))
""",
    "Draws": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> draws = CPRegressor(1, method="gibbs", max_iter=60, random_state=0).fit(tensor).posterior_
>>> draws.rows.ndim, draws.rows.shape[2]
(4, 18)
""",
    "PointEstimate": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> point = CPRegressor(1, method="wopt", interactions="cp", random_state=0).fit(tensor).posterior_
>>> point.shape, point.rows.shape
((8, 6, 4), (18, 1))
""",
    "Mixture": """
>>> from tensorcep import CEP, CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method=CEP(n_ensemble=2, n_starts=2), interactions="cp", random_state=0).fit(tensor)
>>> len(model.posterior_.members)
2
""",
}
