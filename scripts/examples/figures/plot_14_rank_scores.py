"""
How many components?
====================

The held-out score of each rank with bars: it rises steeply up to three components and stays level after.
"""

from tensorcep import CPRegressor, plots, select_rank, simulate_cp

tensor = simulate_cp((20, 15, 10), 3, 1500, noise_precision=9.0, random_state=0).tensor
quick = CPRegressor(method="vmp", interactions="cp", prior="learned", random_state=0)
plots.plot_rank_scores(select_rank(quick, tensor, ranks=[1, 2, 3, 4, 5], random_state=0))
