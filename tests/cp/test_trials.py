"""Engines that are named go on from what a pilot has found, in columns that the data show, as long as that is no loss."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from tensorcep import CPClassifier, CPRegressor, SparseTensor
from tensorcep.cp.choice import falls_short

SHAPE = (60, 40, 30)


def drawn(seed, n, rank, shape=SHAPE):
    """Cells in random order, and latent values of variance one, of zero-mean components."""
    rng = np.random.default_rng(seed)
    cells = rng.choice(int(np.prod(shape)), n, replace=False)
    coords = np.stack(np.unravel_index(cells, shape), axis=1)
    factors = [rng.standard_normal((size, rank)) for size in shape]
    f = np.prod([factor[at] for factor, at in zip(factors, coords.T, strict=True)], axis=0).sum(axis=1)
    return coords, f / f.std(), rng


def rare_labels(seed, n):
    """Labels of which 6 % are ones, and their probabilities."""
    coords, f, rng = drawn(seed, n, 2)
    p = 1.0 / (1.0 + np.exp(4.7 - 3.0 * f))
    return coords, (rng.random(n) < p).astype(float), p


def log_loss(y, p):
    return float(-np.mean(np.log(np.where(y > 0.0, p, 1.0 - p))))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("method", ["pg-vb", "laplace"])
def test_rare_labels_are_told_from_a_constant_by_engines_that_are_named(method):
    coords, y, _ = rare_labels(0, 14_000)
    train = SparseTensor(coords[:10_000], y[:10_000], SHAPE)
    model = CPClassifier(method=method, random_state=0).fit(train)
    test, share = y[10_000:], y[:10_000].mean()
    assert log_loss(test, model.predict_proba(coords[10_000:])[:, 1]) < 0.87 * log_loss(test, np.full(4_000, share))
