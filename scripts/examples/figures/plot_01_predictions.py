"""
Predictions of held-out entries
===============================

Held-out responses against their predictions, some with 90 % intervals, along the diagonal; larger ones scatter more.
"""

from tensorcep import CPRegressor, datasets, plots

train, test = datasets.load_il2().train_test_split(test_size=0.2, random_state=0)
model = CPRegressor(
    4, method="vmp", prior="learned", interactions="main+cp", random_state=0
).fit(train)
mean, sd = model.predict(test, return_std=True)
plots.plot_predictions(test.values, mean, sd)
