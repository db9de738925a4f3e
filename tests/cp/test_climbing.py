"""Components by many quick starts: found where spectra show none, the same on two threads, none in noise."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from tensorcep import CPRegressor
from tensorcep.core.executor import ALONE, ThreadExecutor
from tensorcep.cp.init import spectral
from tensorcep.cp.init.multistart import climb
from tensorcep.cp.init.spectral import spectral_start

SHAPE = (150, 100, 50)
pytestmark = pytest.mark.filterwarnings(f"ignore::{ConvergenceWarning.__module__}.ConvergenceWarning")


def planted(seed, n=2000, noise=0.3, held=1000):
    """Entries of one component of zero mean, in no order, and what it says of further cells."""
    rng = np.random.default_rng(seed)
    factors = [rng.standard_normal(size) for size in SHAPE]
    flat = rng.choice(int(np.prod(SHAPE)), n + held, replace=False)
    coords = np.stack(np.unravel_index(flat, SHAPE), axis=1)
    f = np.prod([own[column] for own, column in zip(factors, coords.T, strict=True)], axis=0)
    return coords[:n], f[:n] + noise * rng.standard_normal(n), coords[n:], f[n:]


def said(factors, coords):
    return np.prod([own[column, 0] for own, column in zip(factors, coords.T, strict=True)], axis=0)


def test_most_components_are_found_from_twenty_entries_a_row():
    found = []
    for seed in range(6):
        coords, y, others, f = planted(seed)
        y = np.clip((y - y.mean()) / y.std(), -4.0, 4.0)
        factors = climb(coords, y, SHAPE, np.random.default_rng(seed), ALONE)
        found.append(np.corrcoef(said(factors, others), f)[0, 1] ** 2)
        for factor in factors:
            assert np.mean(factor[factor != 0.0] ** 2) == pytest.approx(1.0)
    assert np.count_nonzero(np.array(found) > 0.7) >= 4


def test_threads_give_the_same_bits():
    coords, y, _, _ = planted(0)
    one = climb(coords, y, SHAPE, np.random.default_rng(1), ALONE)
    two = climb(coords, y, SHAPE, np.random.default_rng(1), ThreadExecutor(2))
    for a, b in zip(one, two, strict=True):
        np.testing.assert_array_equal(a, b)


def test_of_many_entries_there_are_too_few_starts():
    rng = np.random.default_rng(0)
    coords = rng.integers(0, 300, (60_000, 3))
    assert climb(coords, rng.standard_normal(60_000), (300,) * 3, rng, ALONE) is None


def test_noise_has_no_components():
    for seed in range(4):
        rng = np.random.default_rng(seed)
        coords = np.stack([rng.integers(0, size, 2000) for size in SHAPE], axis=1)
        found = spectral_start(coords, rng.standard_normal(2000), SHAPE, 6, seed=seed)
        assert found.n_found == 0


def test_streams_which_fit_their_first_entries_anew_again_and_again_do_not_try(monkeypatch):
    asked = []
    monkeypatch.setattr(spectral, "climb", lambda *given: asked.append(1))
    coords, y, _, _ = planted(0)
    model = CPRegressor(3, random_state=0)
    for part in np.array_split(np.arange(len(y)), 4):
        model.partial_fit(coords[part], y[part])
    assert not asked
    CPRegressor(3, random_state=0, max_iter=20).fit(coords, y)
    assert asked


def test_a_fit_by_default_finds_what_spectra_do_not_show(monkeypatch):
    coords, y, others, f = planted(0)
    with_starts = CPRegressor(3, random_state=0, max_iter=200).fit(coords, y)
    assert np.mean((with_starts.predict(others) - f) ** 2) < 0.2 * f.var()
    monkeypatch.setattr(spectral, "climb", lambda *given: None)
    without = CPRegressor(3, random_state=0, max_iter=200).fit(coords, y)
    assert np.mean((without.predict(others) - f) ** 2) > 0.9 * f.var()
