"""Examples of models of one matrix, by the names of what they show; they are part of the docstrings."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "BasePCA.fit": """
>>> import numpy as np
>>> from tensorcep import BayesianPCA
>>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
>>> X[0, 2] = np.nan
>>> model = BayesianPCA(1, random_state=0).fit(X)
>>> model.n_components_
1
""",
    "BasePCA.inverse_transform": """
>>> import numpy as np
>>> from tensorcep import BayesianPCA
>>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
>>> X[0, 2] = np.nan
>>> model = BayesianPCA(1, random_state=0).fit(X)
>>> model.inverse_transform([[0.0], [1.0]]).shape
(2, 3)
""",
    "BasePCA.partial_fit": """
>>> import numpy as np
>>> from tensorcep import BayesianPCA
>>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
>>> X[0, 2] = np.nan
>>> model = BayesianPCA(1, random_state=0).fit(X)
>>> model = BayesianPCA(1, random_state=0).partial_fit(X[:3]).partial_fit(X[3:])
>>> model.transform(X[:1]).shape
(1, 1)
""",
    "BasePCA.predict_latent": """
>>> import numpy as np
>>> from tensorcep import BayesianPCA
>>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
>>> X[0, 2] = np.nan
>>> model = BayesianPCA(1, random_state=0).fit(X)
>>> mean, variance = model.predict_latent()
>>> mean.shape, bool((variance > 0).all())
((6, 3), True)
""",
    "BasePCA.predict_missing": """
>>> import numpy as np
>>> from tensorcep import BayesianPCA
>>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
>>> X[0, 2] = np.nan
>>> model = BayesianPCA(1, random_state=0).fit(X)
>>> filled = model.predict_missing()
>>> bool(np.isnan(filled).any()), filled.shape
(False, (6, 3))
""",
    "BasePCA.reconstruct": """
>>> import numpy as np
>>> from tensorcep import BayesianPCA
>>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
>>> X[0, 2] = np.nan
>>> model = BayesianPCA(1, random_state=0).fit(X)
>>> model.reconstruct().shape
(6, 3)
""",
    "BasePCA.score": """
>>> import numpy as np
>>> from tensorcep import BayesianPCA
>>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
>>> X[0, 2] = np.nan
>>> model = BayesianPCA(1, random_state=0).fit(X)
>>> bool(model.score(X) == model.score_samples(X).mean())
True
""",
    "BasePCA.score_samples": """
>>> import numpy as np
>>> from tensorcep import BayesianPCA
>>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
>>> X[0, 2] = np.nan
>>> model = BayesianPCA(1, random_state=0).fit(X)
>>> model.score_samples(X).shape
(6,)
""",
    "BasePCA.transform": """
>>> import numpy as np
>>> from tensorcep import BayesianPCA
>>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, -1.0, 0.5]) + np.eye(6, 3)
>>> X[0, 2] = np.nan
>>> model = BayesianPCA(1, random_state=0).fit(X)
>>> scores, covariances = model.transform(X[:2], return_cov=True)
>>> scores.shape, covariances.shape
((2, 1), (2, 1, 1))
""",
}
