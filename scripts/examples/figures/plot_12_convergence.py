"""
Convergence
===========

The change of each sweep on a log scale, of four starts one after the other; each falls below the dashed tolerance.
"""

from tensorcep import CPRegressor, plots, simulate_cp

tensor = simulate_cp((20, 15, 10), 2, 1200, noise_precision=4.0, random_state=0).tensor
model = CPRegressor(2, method="cep", interactions="cp", random_state=0).fit(tensor)
plots.plot_convergence(model.trace_, tol=model.tol)
