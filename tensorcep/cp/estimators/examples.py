"""Examples of the estimators of tensors, by the names of what they show; they are part of the docstrings."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "CPRegressor": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> mean, sd = model.predict(tensor, return_std=True)
>>> mean.shape, bool((sd > 0).all()), round(model.score(tensor), 1)
((120,), True, 0.7)
""",
    "CPRegressor.predict": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> mean, sd = model.predict([[0, 1, 2], [7, 5, 3]], return_std=True)
>>> mean.shape, sd.shape
((2,), (2,))
""",
    "CPRegressor.predict_interval": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> lower, upper = model.predict_interval(tensor, coverage=0.9).T
>>> bool((lower < upper).all())
True
""",
    "CPRegressor.score": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> model.score(tensor) == model.score(tensor.coords, tensor.values)
True
""",
    "CPClassifier": """
>>> from tensorcep import CPClassifier, simulate_cp
>>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
>>> model.predict_proba(entries.coords).shape, model.classes_.tolist()
((120, 2), [0, 1])
""",
    "CPClassifier.predict": """
>>> from tensorcep import CPClassifier, simulate_cp
>>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
>>> model.predict(entries.coords[:3]).dtype
dtype('int64')
""",
    "CPClassifier.predict_proba": """
>>> from tensorcep import CPClassifier, simulate_cp
>>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
>>> p = model.predict_proba(entries.coords)
>>> p.shape, bool(abs(p.sum(axis=1) - 1).max() < 1e-9)
((120, 2), True)
""",
    "CPClassifier.decision_function": """
>>> from tensorcep import CPClassifier, simulate_cp
>>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
>>> score = model.decision_function(entries.coords)
>>> bool(((score > 0) == model.predict(entries.coords)).all())
True
""",
    "CPClassifier.predict_interval": """
>>> from tensorcep import CPClassifier, simulate_cp
>>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
>>> lower, upper = model.predict_interval(entries.coords, coverage=0.5).T
>>> bool((0 <= lower).all() and (lower < upper).all() and (upper <= 1).all())
True
""",
    "CPClassifier.sample_y": """
>>> from tensorcep import CPClassifier, simulate_cp
>>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
>>> model.sample_y(entries.coords, n_samples=5, random_state=0).shape
(5, 120)
""",
    "CPClassifier.score": """
>>> from tensorcep import CPClassifier, simulate_cp
>>> entries = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPClassifier(1, method="vmp", random_state=0).fit(entries.coords, entries.values > 1)
>>> model.score(entries.coords, entries.values > 1) > 0.7
True
""",
    "CPPredictions.chain_diagnostics": """
>>> from tensorcep import CPRegressor, Gibbs, simulate_cp
>>> tensor = simulate_cp((6, 5), 1, 30, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method=Gibbs(n_chains=2), interactions="cp", max_iter=150, random_state=0).fit(tensor)
>>> r_hat, independent = model.chain_diagnostics(tensor)
>>> r_hat.shape
(30,)
""",
    "CPPredictions.has_uncertainty": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> model.has_uncertainty(), model.set_params(method="wopt").fit(tensor).has_uncertainty()
(True, False)
""",
    "CPPredictions.log_score": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> model.log_score(tensor, tensor.values).shape
(120,)
""",
    "CPPredictions.predict_latent": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> mean, variance = model.predict_latent(tensor)
>>> bool((variance < model.predict(tensor, return_std=True)[1] ** 2).all())
True
""",
    "CPPredictions.sample_posterior": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> model.sample_posterior(5, tensor, random_state=0).shape
(5, 120)
""",
    "CPPredictions.sample_y": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> model.sample_y(tensor, n_samples=5, random_state=0).shape
(5, 120)
""",
    "CPPredictions.save": """
>>> import tempfile
>>> from tensorcep import CPRegressor, load, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> with tempfile.TemporaryDirectory() as folder:
...     model.save(f"{folder}/model.npz")
...     again = load(f"{folder}/model.npz")
...
>>> bool((again.predict(tensor) == model.predict(tensor)).all())
True
""",
    "CPPredictions.to_arviz": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, method="vmp", random_state=0).fit(tensor)
>>> sorted(model.to_arviz(tensor, n_samples=20, random_state=0).groups())  # doctest: +SKIP
""",
    "StreamingCP.partial_fit": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, prior="fixed", random_state=0).partial_fit(tensor.select(range(60)))
>>> model.partial_fit(tensor.select(range(60, 120))).n_samples_seen_
120
""",
    "StreamingCP.stream": """
>>> from tensorcep import CPRegressor, simulate_cp
>>> tensor = simulate_cp((8, 6, 4), 1, 120, noise_precision=9.0, prior_mean=1.0, random_state=0).tensor
>>> model = CPRegressor(1, prior="fixed", random_state=0).stream(tensor.minibatches(60, shuffle=False))
>>> model.n_batches_, len(model.stream_trace_["log_score"])
(2, 2)
""",
}
