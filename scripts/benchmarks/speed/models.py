"""Whole fits and predictions: by default and by name, matrices, linear models and Gaussian processes."""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF

import tensorcep as tc
from tensorcep import metrics

from . import cpu_seconds, drawn, fitted

SHAPE, FRESH = (500, 300, 200), 20_000
SIZES = {"values": 100_000, "labels": 100_000, "counts": 70_000, "few labels": 1_330, "a million values": 1_000_000}


class Fit:
    """Seconds of a fit of 100,000 or a million values, 100,000 or 1,330 labels, 70,000 counts; loss in fresh cells."""

    params = (list(SIZES), ["auto", "vmp", "wopt"], [1, 2])
    param_names = ("data", "method", "threads")
    timeout = 1200

    def setup(self, data: str, method: str, threads: int) -> None:
        self.kind = data.split()[-1]
        n, few = SIZES[data], data == "few labels"
        if (self.kind != "values" and method == "wopt") or (self.kind == "counts" and method == "vmp"):
            raise NotImplementedError
        coords, y = drawn(self.kind, n + FRESH // (8 if few else 1), (40, 30, 20) if few else SHAPE, 2 if few else 8)
        self.train, self.test = (coords[:n], y[:n]), (coords[n:], y[n:])
        self.how = {"method": method, "n_jobs": threads, "shape": (40, 30, 20) if few else SHAPE}
        fitted(self.kind, *(part[:2000] for part in self.train), **{**self.how, "max_iter": 10})

    def track_cpu_seconds(self, *_: Any) -> float:
        return cpu_seconds(lambda: fitted(self.kind, *self.train, **self.how))

    track_cpu_seconds.unit = "s"  # type: ignore[attr-defined]

    def track_seconds(self, *_: Any) -> float:
        begin = time.perf_counter()
        fitted(self.kind, *self.train, **self.how)
        return time.perf_counter() - begin

    track_seconds.unit = "s"  # type: ignore[attr-defined]

    def track_loss(self, *_: Any) -> float:
        """RMSE of values, 1 - AUC of labels, minus the log score of counts."""
        model, (coords, y) = fitted(self.kind, *self.train, **self.how), self.test
        if self.kind == "values":
            return float(metrics.rmse(y, model.predict(coords)))
        if self.kind == "labels":
            return 1.0 - float(metrics.auc(y, model.predict_latent(coords)[0]))
        return -float(np.mean(model.log_score(coords, y)))


class Predict:
    """Predictions of 100,000 cells by fits of 100,000 entries by default."""

    params = ([1, 2],)
    param_names = ("threads",)
    timeout = 900

    def setup_cache(self) -> tuple[Any, Any]:
        models = [fitted(kind, *drawn(kind, 100_000, SHAPE), shape=SHAPE) for kind in ("values", "labels")]
        return models[0], models[1]

    def setup(self, models: tuple[Any, Any], threads: int) -> None:
        self.cells = np.random.default_rng(1).integers(0, SHAPE, (100_000, 3))
        self.regressor, self.classifier = (model.set_params(n_jobs=threads) for model in models)
        self.regressor.predict_interval(self.cells[:64])
        self.classifier.predict_proba(self.cells[:64])

    def time_predict(self, *_: Any) -> None:
        self.regressor.predict(self.cells)

    def time_predict_interval(self, *_: Any) -> None:
        self.regressor.predict_interval(self.cells)

    def time_predict_proba(self, *_: Any) -> None:
        self.classifier.predict_proba(self.cells)


class Others:
    """CPU seconds of fits of the other families, after a small one that loads what is compiled."""

    params = (["pca", "pca of labels", "logistic regression", "gaussian process"],)
    param_names = ("model",)
    unit = "s"
    timeout = 900

    def track_cpu_seconds(self, name: str) -> float:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((20_000, 10)) @ rng.standard_normal((10, 300))
        y = (X[:, 0] + rng.standard_normal(len(X)) > 0.0).astype(int)
        gaps = np.where(rng.random(X.shape) < 0.5, np.nan, X + 0.5 * rng.standard_normal(X.shape))
        model, data = {
            "pca": lambda: (tc.BayesianPCA(10, random_state=0), (gaps,)),
            "pca of labels": lambda: (tc.BayesianPCA(15, "bernoulli", random_state=0), ((X[:1000, :100] > 0) * 1.0,)),
            "logistic regression": lambda: (tc.BayesianLogisticRegression(), (X / 3.0, y)),
            "gaussian process": lambda: (tc.GaussianProcessClassifier(1.0 * RBF(3.0)), (X[:300, :5], y[:300])),
        }[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(*(part[:100] for part in data))
            return cpu_seconds(model.fit, *data)
