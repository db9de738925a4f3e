"""
Two views of the same samples
=============================

What they share, what each has alone, and how samples lie.
"""

import numpy as np
import pandas as pd

from tensorcep import GroupFactorAnalysis, plots

rng = np.random.default_rng(0)
shared, own = rng.normal(size=(80, 1)), rng.normal(size=(80, 2))
rna = np.hstack([shared, own[:, :1]]) @ rng.normal(size=(2, 20)) + 0.5 * rng.normal(size=(80, 20))
atac = np.hstack([shared, own[:, 1:]]) @ rng.normal(size=(2, 15)) + 0.5 * rng.normal(size=(80, 15))
views = {"rna": pd.DataFrame(rna).add_prefix("g"), "atac": pd.DataFrame(atac).add_prefix("peak")}
model = GroupFactorAnalysis(4, random_state=0, tol=1e-4).fit(views)
print(model.variance_explained().round(2))
print(model.components("atac").head(3).round(2))
print(plots.plot_variance_explained(model.variance_explained()).get_title())
plots.plot_scores(model.scores_, np.where(shared[:, 0] > 0, "a", "b"), name="arm")
