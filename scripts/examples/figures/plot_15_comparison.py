"""
Methods beside each other
=========================

Three methods by their seconds and their error: mean field is the quickest, CEP the most accurate.
"""

from tensorcep import CPRegressor, compare, plots, simulate_cp

tensor = simulate_cp((20, 15, 10), 2, 1500, noise_precision=4.0, random_state=0).tensor
train, test = tensor.train_test_split(0.2, random_state=0)
plots.plot_comparison(
    compare(train, test, ["cep", "vmp", "wopt"], estimator=CPRegressor(2, random_state=0))
)
