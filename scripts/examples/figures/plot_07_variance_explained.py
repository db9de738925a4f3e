"""
What the components explain
===========================

Bars: the share of the variance that each component of a tensor of responses explains, the largest first.
"""

from tensorcep import CPRegressor, datasets, plots

responses = datasets.load_il2()
model = CPRegressor(3, method="vmp", interactions="main+cp", random_state=0).fit(
    responses
)
plots.plot_variance_explained(model.variance_explained(responses))
