"""scikit-learn's checks of estimators as parameters of a test."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.utils import estimator_checks


def parametrize_with_checks(*args: Any, **kwargs: Any) -> pytest.MarkDecorator:
    """As scikit-learn's, whose older versions hand pytest a generator, which newer ones of pytest refuse."""
    mark = estimator_checks.parametrize_with_checks(*args, **kwargs)
    names, values = mark.args
    return pytest.mark.parametrize(names, list(values), **mark.kwargs)
