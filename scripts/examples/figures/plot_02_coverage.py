"""
Do intervals hold what they promise?
====================================

The share of held-out values inside their intervals against the level of the intervals: close to the diagonal.
"""

from tensorcep import CPRegressor, plots, simulate_cp

tensor = simulate_cp((30, 20, 10), 2, 2500, noise_precision=4.0, random_state=0).tensor
train, test = tensor.train_test_split(0.3, random_state=0)
model = CPRegressor(2, method="vmp", random_state=0).fit(train)
plots.plot_coverage(
    test.values, {c: model.predict_interval(test, c) for c in (0.2, 0.4, 0.6, 0.8, 0.95)}
)
