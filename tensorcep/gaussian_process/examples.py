"""Examples of Gaussian processes, by the names of what they show; they are part of the docstrings."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "BaseGaussianProcess.latent_mean_and_variance": """
>>> import numpy as np
>>> from sklearn.gaussian_process.kernels import RBF
>>> from tensorcep import GaussianProcessClassifier
>>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
>>> model = GaussianProcessClassifier(RBF(1.0), optimizer=None).fit(X, y)
>>> mean, variance = model.latent_mean_and_variance(X)
>>> bool(((0 < variance) & (variance < 1)).all())
True
""",
    "BaseGaussianProcess.log_marginal_likelihood": """
>>> import numpy as np
>>> from sklearn.gaussian_process.kernels import RBF
>>> from tensorcep import GaussianProcessClassifier
>>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
>>> model = GaussianProcessClassifier(RBF(1.0), optimizer=None).fit(X, y)
>>> round(model.log_marginal_likelihood(model.kernel_.theta), 1)
-3.8
""",
    "BaseGaussianProcess.sample_y": """
>>> import numpy as np
>>> from sklearn.gaussian_process.kernels import RBF
>>> from tensorcep import GaussianProcessClassifier
>>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
>>> model = GaussianProcessClassifier(RBF(1.0), optimizer=None).fit(X, y)
>>> model.sample_y(X, n_samples=3).shape
(5, 3)
""",
    "BaseGaussianProcess.save": """
>>> import tempfile
>>> import numpy as np
>>> from sklearn.gaussian_process.kernels import RBF
>>> from tensorcep import GaussianProcessClassifier, load
>>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
>>> model = GaussianProcessClassifier(RBF(1.0), optimizer=None).fit(X, y)
>>> with tempfile.TemporaryDirectory() as folder:
...     model.save(f"{folder}/model.npz")
...     again = load(f"{folder}/model.npz")
...
>>> bool((again.predict_proba(X) == model.predict_proba(X)).all())
True
""",
    "BaseGaussianProcess.to_arviz": """
>>> import numpy as np
>>> from sklearn.gaussian_process.kernels import RBF
>>> from tensorcep import GaussianProcessClassifier
>>> X, y = np.array([[-2.0], [-1.0], [0.5], [1.0], [2.0]]), [0, 0, 1, 0, 1]
>>> model = GaussianProcessClassifier(RBF(1.0), optimizer=None).fit(X, y)
>>> sorted(model.to_arviz(X, n_samples=20).groups())  # doctest: +SKIP
""",
}
