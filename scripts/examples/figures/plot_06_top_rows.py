"""
Which rows weigh most in which components
=========================================

A table of coloured cells: receptors against components, dark red where a weight is large and blue where it is negative.
"""

from tensorcep import CPRegressor, datasets, plots

_, serology = datasets.load_covid19_serology().train_test_split(
    test_size=0.3, random_state=0
)
model = CPRegressor(3, method="vmp", interactions="main+cp", random_state=0).fit(serology)
plots.plot_top_rows(model, "receptor", n_components=4)
