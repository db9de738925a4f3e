"""Two views of the same samples: what they share, what each has alone, and how samples lie."""

import numpy as np
import pandas as pd

from tensorcep import GroupFactorAnalysis, plots

rng = np.random.default_rng(0)
shared, own = rng.normal(size=(80, 1)), rng.normal(size=(80, 2))
rna = np.hstack([shared, own[:, :1]]) @ rng.normal(size=(2, 20)) + 0.5 * rng.normal(size=(80, 20))
atac = np.hstack([shared, own[:, 1:]]) @ rng.normal(size=(2, 15)) + 0.5 * rng.normal(size=(80, 15))
model = GroupFactorAnalysis(4, random_state=0, tol=1e-4).fit([rna, atac])
shares = model.explained_variance_ / model.explained_variance_.sum(axis=1, keepdims=True)
table = pd.DataFrame(shares, index=["rna", "atac"])
print(plots.plot_variance_explained(table).get_title(), table.round(2).to_string(), sep="\n")
plots.plot_scores(model.scores_, np.where(shared[:, 0] > 0, "a", "b"), name="arm")
