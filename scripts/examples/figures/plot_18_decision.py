"""
Where a Gaussian process decides
================================

Points of two moons, a line where the probability is a half, and two lines where the ends of its interval are.
"""

from sklearn.datasets import make_moons
from sklearn.gaussian_process.kernels import RBF

from tensorcep import GaussianProcessClassifier, plots

X, y = make_moons(60, noise=0.2, random_state=0)
model = GaussianProcessClassifier(4.0 * RBF(0.7), optimizer=None).fit(X, y)
plots.plot_decision(model, X, y, n_grid=40)
