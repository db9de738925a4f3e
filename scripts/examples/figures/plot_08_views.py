"""
What several views share
========================

A heat map of views against components: the first component explains both views, the next two one each.
"""

import numpy as np

from tensorcep import GroupFactorAnalysis, plots

rng = np.random.default_rng(0)
shared, own = rng.normal(size=(80, 1)), rng.normal(size=(80, 2))
rna = np.hstack([shared, own[:, :1]]) @ rng.normal(size=(2, 20))
rna += 0.5 * rng.normal(size=(80, 20))
atac = np.hstack([shared, own[:, 1:]]) @ rng.normal(size=(2, 15))
atac += 0.5 * rng.normal(size=(80, 15))
model = GroupFactorAnalysis(4, random_state=0, tol=1e-4).fit({"rna": rna, "atac": atac})
plots.plot_variance_explained(model.variance_explained())
