"""
How many components?
====================

Held-out scores of each rank, a scree, and whether halves of the data agree.
"""

from tensorcep import CPRegressor, plots, replicability, select_rank, simulate_cp

tensor = simulate_cp((20, 15, 10), 3, 1500, noise_precision=9.0, random_state=0).tensor
model = CPRegressor(method="vmp", interactions="cp", prior="learned", random_state=0)
found = select_rank(model, tensor, ranks=[1, 2, 3, 4], random_state=0)
print(found.frame.round(3))
fitted = model.set_params(rank=found.rank).fit(tensor)
plots.plot_variance_explained(fitted.variance_explained(tensor), kind="scree")
print(fitted.variance_explained(tensor).round(3))
print(replicability(model, tensor, by="halves", n_repeats=1).round(2))
