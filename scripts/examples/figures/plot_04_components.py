"""
The components of all modes
===========================

A grid of panels: one column for each component, one row for each mode; doses as lines, cells and ligands as dots.
"""

from tensorcep import CPRegressor, datasets, plots

responses = datasets.load_il2()  # ligand x time x dose x cell
model = CPRegressor(2, method="vmp", interactions="main+cp", random_state=0).fit(
    responses
)
plots.plot_components(model, n_components=2)
