"""
Predictions along a mode
========================

The response of one ligand and cell over the doses, with a band of 90 %; measured points at high doses lie below it:
three components do not hold this ligand's shape.
"""

from tensorcep import CPRegressor, datasets, plots

responses = datasets.load_il2()
model = CPRegressor(3, method="vmp", interactions="main+cp", random_state=0).fit(
    responses
)
given = {
    "ligand": responses.labels[0][0],
    "time": responses.labels[1][0],
    "cell": responses.labels[3][0],
}
plots.plot_forecast(model, "dose", given, X=responses)
