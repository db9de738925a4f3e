"""
The rate of events over time
============================

Yearly counts of explosions in coal mines as dots, and the rate with its band, which falls around 1890.
"""

from sklearn.gaussian_process.kernels import RBF

from tensorcep import GaussianProcessCountRegressor, datasets, plots

year, events = datasets.load_coal_mining()
model = GaussianProcessCountRegressor(0.5 * RBF(15.0), optimizer=None).fit(year, events)
plots.plot_rate(model, year, events)
