"""
Residuals by row
================

For every dose a strip of standardised residuals around zero; those of large doses, in another colour, spread more.
"""

from tensorcep import CPRegressor, datasets, plots

responses = datasets.load_il2()
model = CPRegressor(3, method="vmp", interactions="main+cp", random_state=0).fit(
    responses
)
plots.plot_residuals(model, responses, mode="dose")
