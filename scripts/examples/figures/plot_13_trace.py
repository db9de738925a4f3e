"""
Do the chains agree?
====================

The draws of two chains for one entry, over the sweeps: the lines cross each other all the time.
"""

from tensorcep import CPRegressor, Gibbs, plots, simulate_cp

tensor = simulate_cp(
    (20, 15, 10), 2, 1500, noise_precision=25.0, prior_mean=0.7, random_state=0
).tensor
method = Gibbs(n_chains=2)
model = CPRegressor(2, method=method, interactions="cp", init="random", random_state=0)
plots.plot_trace(model.set_params(max_iter=200).fit(tensor), tensor.coords[:1])
