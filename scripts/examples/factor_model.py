"""
Fill the gaps of a matrix
=========================

Which pixels of handwritten digits are dark, a third of them unseen.
"""

import numpy as np
from sklearn.datasets import load_digits

from tensorcep import BayesianPCA, metrics

images = load_digits().data[:600]
dark = (images > 7.0).astype(float)
hidden = np.random.default_rng(0).random(dark.shape) < 0.3
seen = np.where(hidden, np.nan, dark)  # NaN is a gap

model = BayesianPCA(8, "bernoulli", max_iter=500, random_state=0).fit(seen)
p = model.reconstruct()[hidden]
share = np.broadcast_to(np.nanmean(seen, axis=0), dark.shape)[hidden]
print(f"AUC of the hidden pixels {metrics.auc(dark[hidden], p):.3f}", end="; ")
print(f"by each pixel's share of dark images alone {metrics.auc(dark[hidden], share):.3f}")

scores, covariances = model.transform(seen[:3], return_cov=True)  # places rows, with their uncertainty
sd = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
for row, (score, error) in enumerate(zip(scores, sd, strict=True)):
    print(f"image {row}:", ", ".join(f"{a:.2f} ± {b:.2f}" for a, b in zip(score[:4], error[:4], strict=True)))
