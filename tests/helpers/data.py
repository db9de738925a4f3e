"""Small simulated tensors and models fitted to them, made once."""

from __future__ import annotations

from functools import cache

from helpers.models import paper

import tensorcep as tc

SHAPE = (12, 10, 8)
CLASSES = {"regressor": tc.CPRegressor, "classifier": tc.CPClassifier, "counts": tc.CPCountRegressor}
LIKELIHOOD = {"regressor": "gaussian", "classifier": "probit", "counts": "poisson"}
NAMES = tuple(CLASSES)


@cache
def simulated(name):
    """The simulation behind `entries`."""
    options = {
        "regressor": {"noise_precision": 25.0, "prior_mean": 0.7, "prior_sd": 0.7},
        "classifier": {"prior_mean": 0.7, "prior_sd": 0.7},
        "counts": {"prior_mean": 0.8, "prior_sd": 0.5},
    }[name]
    return tc.simulate_cp(SHAPE, 2, 600, likelihood=LIKELIHOOD[name], random_state=3, **options)


def entries(name):
    """Coordinates (600, 3) and values."""
    tensor = simulated(name).tensor
    return tensor.coords, tensor.values


def new(name, **params):
    """An estimator whose fit to `entries` converges."""
    base = {"rank": 2, "random_state": 0, "tol": 1e-2, "max_iter": 200}
    if name == "counts":
        base |= {"moments": "posterior", "damping": 0.8}  # cavity moments do not settle on counts
    return paper(CLASSES[name], **{**base, **params})


@cache
def fitted(name):
    """A model fitted to all of `entries` and shared: do not change it."""
    return new(name).fit(*entries(name))
