"""
One component's weights, with error bars
========================================

The weights of thirteen ligands in the first component, each with its 90 % interval, the largest on top.
"""

from tensorcep import CPRegressor, datasets, plots

model = CPRegressor(2, method="vmp", interactions="main+cp", random_state=0).fit(
    datasets.load_il2()
)
plots.plot_component(model, "ligand", 0)
