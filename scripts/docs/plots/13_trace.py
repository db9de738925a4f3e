"""Do the chains agree?

The draws of two chains for one entry, over the sweeps: the lines cross each other all the time.
"""

from tensorcep import CPRegressor, Gibbs, plots, simulate_cp

tensor = simulate_cp((20, 15, 10), 2, 1500, noise_precision=25.0, prior_mean=0.7, random_state=0).tensor
model = CPRegressor(2, method=Gibbs(n_chains=2), interactions="cp", init="random", max_iter=200, random_state=0).fit(
    tensor
)
plots.plot_trace(model, tensor.coords[:1])
