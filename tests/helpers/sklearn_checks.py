"""scikit-learn's checks of estimators: all of them of an estimator as its user first meets it, few of its variants."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

# What a method or a form may break: a fit and its predictions, twice, from sparse rows, of few rows, from a pickle.
OF_THE_ENGINE = {
    "check_estimator_cloneable",
    "check_estimator_sparse_matrix",
    "check_estimators_pickle",
    "check_classifiers_train",
    "check_fit_idempotent",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
}


def check_contract(estimator: Any, subtests: pytest.Subtests, names: set[str] | None = None) -> None:
    """Make scikit-learn's checks of an estimator, or those with these names alone, each of which may fail by itself."""
    made = set()
    for one, check in estimator_checks_generator(estimator):
        name = check.func.__name__
        if names is None or name in names:
            made.add(name)
            with subtests.test(f"{estimator!r} {name}"):
                check(one)
    assert made if names is None else made == names
