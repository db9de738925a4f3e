"""
Do probabilities hold what they promise?
========================================

The share of ones against the predicted probability, with bars of chance: points lie near the diagonal.
"""

from tensorcep import CPClassifier, plots, simulate_cp

tensor = simulate_cp(
    (30, 20, 10), 2, 3000, noise_precision=4.0, prior_mean=0.7, random_state=0
).tensor
train, test = tensor.train_test_split(0.4, random_state=0)
model = CPClassifier(2, method="cep", max_iter=30, random_state=0).fit(
    train.coords, train.values > 2
)
plots.plot_reliability(test.values > 2, model.predict_proba(test.coords)[:, 1])
