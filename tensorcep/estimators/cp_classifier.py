"""Bayesian CP decomposition of 0/1 labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import logit, ndtri
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from tensorcep._checks import check_choice
from tensorcep.estimators._base import BaseCP
from tensorcep.estimators._docs import document
from tensorcep.posterior import Prior


@document("is 1 (the paper's)")
class CPClassifier(ClassifierMixin, BaseCP):  # type: ignore[misc]
    """Bayesian CP decomposition of a sparse tensor of 0/1 labels, P(y = 1) = link(sum_r prod_k U_k[i_k, r]).

    Entries are samples: X holds their integer coordinates (N, K), y their labels 0 or 1. Any order K >= 2. An absent
    entry is unobserved; if only ones were recorded, add zeros with `SparseTensor.sample_zeros`.

    Parameters
    ----------
    <parameters>
    link : {"probit", "logit"}, default="probit"

    Attributes
    ----------
    <attributes>
    classes_ : ndarray [0, 1]

    References
    ----------
    Wang and Zhe, Conditional Expectation Propagation, sec. 4.1 and supplement 8.1.2.
    """

    def __init__(
        self,
        rank: int = 8,
        *,
        link: str = "probit",
        method: str = "cep",
        prior_scale: float | str = "auto",
        prior_mean: float | str = "uniform",
        prior: Prior | str | None = None,
        interactions: str | dict[str, int] = "cp",
        schedule: str = "modewise",
        moments: str = "cavity",
        order: int = 1,
        damping: float | str = "auto",
        anneal: int | str = "auto",
        max_iter: int = 200,
        tol: float = 3e-3,
        init: Any = "random",
        n_init: int = 3,
        n_ensemble: int = 1,
        shape: tuple[int, ...] | None = None,
        unknown: str = "prior",
        dtype: str = "float64",
        method_options: dict[str, Any] | None = None,
        forget: float = 0.0,
        revisit: int = 0,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        callbacks: Any = None,
    ):
        super().__init__(
            rank,
            method=method,
            prior_scale=prior_scale,
            prior_mean=prior_mean,
            prior=prior,
            interactions=interactions,
            schedule=schedule,
            moments=moments,
            order=order,
            damping=damping,
            anneal=anneal,
            max_iter=max_iter,
            tol=tol,
            init=init,
            n_init=n_init,
            n_ensemble=n_ensemble,
            shape=shape,
            unknown=unknown,
            dtype=dtype,
            method_options=method_options,
            forget=forget,
            revisit=revisit,
            n_jobs=n_jobs,
            random_state=random_state,
            verbose=verbose,
            callbacks=callbacks,
        )
        self.link = link

    def _likelihood_name(self) -> str:
        return check_choice("link", self.link, ("probit", "logit"))

    def _intercept(self, y: np.ndarray) -> float:
        """The link of the share of ones, kept off 0 and 1 by half an entry."""
        share = (np.count_nonzero(y > 0.0) + 0.5) / (len(y) + 1.0)
        return float(ndtri(share) if self.link == "probit" else logit(share))

    @property
    def classes_(self) -> np.ndarray:
        """The two labels."""
        check_is_fitted(self, "posterior_")
        return np.array([0, 1])

    def predict_proba(self, X: Any) -> np.ndarray:
        """Predictive probabilities of 0 and 1, (n, 2), the posterior of the factors integrated out."""
        p, _ = self._observed(X)
        return np.stack([1.0 - p, p], axis=1)

    def predict(self, X: Any) -> np.ndarray:
        """The more probable label of each entry, (n,) int64."""
        return (self.predict_proba(X)[:, 1] > 0.5).astype(np.int64)

    def decision_function(self, X: Any) -> np.ndarray:
        """Latent mean divided by the predictive scale: ranks entries as `predict_proba` does, (n,)."""
        mean, variance = self.predict_latent(X)
        slope = 1.0 if self.link == "probit" else np.pi / 8.0
        return mean / np.sqrt(1.0 + slope * variance)

    def predict_interval(self, X: Any, coverage: float = 0.9) -> np.ndarray:
        """Central posterior interval of the probability of a 1, (n, 2): the uncertainty of the probability itself."""
        f = self._latent_interval(X, coverage)
        p, _ = self._likelihood().predict(f.ravel(), np.zeros(f.size), np.ones(f.size))
        return p.reshape(f.shape)
