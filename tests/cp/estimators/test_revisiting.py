"""The parameter `revisit` of the CP estimators: past entries that are learned again."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.data import NAMES, entries, new
from helpers.models import paper

import tensorcep as tc
from tensorcep.core.packing import offsets
from tensorcep.cp.stream.modes import posterior_of

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
PARTS = [slice(a, a + 150) for a in range(0, 600, 150)]


def streamed(name, parts=PARTS, **params):
    """A model that learned `entries` in parts."""
    X, y = entries(name)
    return new(name, **params).stream((X[part], y[part]) for part in parts)


def same(a, b):
    for x, z in zip((a.posterior_.Lam, a.posterior_.eta), (b.posterior_.Lam, b.posterior_.eta), strict=True):
        np.testing.assert_array_equal(x, z)
    assert a.posterior_.noise == b.posterior_.noise


CASES = [
    ("regressor", {}),
    ("regressor", {"forget": 0.1}),
    ("regressor", {"interactions": "all"}),
    ("classifier", {"forget": 0.1}),
    ("classifier", {"link": "logit"}),
    ("classifier", {"interactions": "main+cp", "order": 2}),
    ("classifier", {"prior": "learned", "dtype": "float32"}),
    ("counts", {"forget": 0.1}),
]


@each(("name", "params"), CASES)
def test_revisit_keeps_the_posterior_the_prior_times_the_messages(name, params):
    """A reservoir that holds every entry holds all that the posterior knows beyond the prior, forgotten or not."""
    model = streamed(name, revisit=600, **params)
    state, sample = model._result.stream.state, model._result.stream.reservoir.sample
    assert len(sample.y) == 600
    assert model.n_revisited_ + model.n_revisits_skipped_ == 150 + 300 + 450
    assert model.n_revisits_skipped_ == 0
    posterior = posterior_of(state, 1.0 - model.forget)
    rows = sample.coords + offsets(posterior.shape)[:-1]
    for field in ("Lam", "eta"):
        known = np.concatenate([getattr(mode, f"prior_{field}") for mode in state.modes])
        total = known.copy()
        np.add.at(total, rows.ravel(), getattr(sample, field).reshape(rows.size, -1))
        found = getattr(posterior, field)
        np.testing.assert_allclose(found, total, rtol=1e-8, atol=1e-8 * np.abs(found - known).max())
    if posterior.noise is not None:
        a, b = state.noise_prior
        np.testing.assert_allclose(posterior.noise, (a + sample.a.sum(), b + sample.b.sum()), rtol=1e-9)


@each("name", NAMES)
def test_revisit_goes_on_after_save_and_load_with_the_same_bits(name, tmp_path):
    X, y = entries(name)
    model = streamed(name, PARTS[:2], revisit=80, forget=0.05)
    model.save(tmp_path / "model.npz")
    again = tc.load(tmp_path / "model.npz")
    assert again.n_revisited_ == model.n_revisited_ == 80
    far = X[PARTS[2]] + [20, 0, 0]  # new rows too
    for part in (far, X[PARTS[3]]):
        same(model.partial_fit(part, y[PARTS[2]]), again.partial_fit(part, y[PARTS[2]]))
    for a, b in zip(model._result.stream.reservoir.sample, again._result.stream.reservoir.sample, strict=True):
        np.testing.assert_array_equal(a, b)


def test_revisit_has_the_same_bits_on_one_and_two_threads_and_in_any_order_of_a_batch():
    X, y = entries("classifier")
    one = streamed("classifier", revisit=100, n_jobs=1)
    two = new("classifier", revisit=100, n_jobs=2)
    for n, part in enumerate(PARTS):
        order = np.random.default_rng(n).permutation(150)
        two.partial_fit(X[part][order], y[part][order])
    same(one, two)


def test_revisit_is_off_by_default_and_can_be_switched_off():
    X, y = entries("classifier")
    plain = streamed("classifier", PARTS[:3])
    assert plain._result.stream.reservoir is None
    assert (plain.n_revisited_, plain.n_revisits_skipped_) == (0, 0)
    model = new("classifier").partial_fit(X[PARTS[0]], y[PARTS[0]])
    model.set_params(revisit=30).partial_fit(X[PARTS[1]], y[PARTS[1]])  # nothing to revisit yet
    assert len(model._result.stream.reservoir.sample.y) == 30
    model.set_params(revisit=0).partial_fit(X[PARTS[2]], y[PARTS[2]])
    assert model._result.stream.reservoir is None
    same(model, plain)


def test_revisit_learns_more_from_a_stream_of_real_values():
    """Later entries correct what the first batches said: the last prequential scores come closer to the noise."""
    s = tc.simulate_cp((15, 12, 10), 2, 1600, noise_precision=25.0, prior_mean=0.7, prior_sd=0.6, random_state=1)
    X, y = s.tensor.coords, s.tensor.values
    scores = {}
    for size in (0, 400):
        model = paper(tc.CPRegressor, 2, random_state=0, revisit=size)
        model.stream((X[a : a + 100], y[a : a + 100]) for a in range(0, 1600, 100))
        scores[size] = model.stream_trace_["log_score"][-5:].mean()
        assert model.n_samples_seen_ == 1600
    assert scores[400] > scores[0] + 0.2


def test_a_reservoir_of_all_entries_leads_where_one_fit_does_and_beyond_it_messages_stay():
    tensor = tc.simulate_cp((9, 8, 7), 2, 260, noise_precision=150.0, prior_mean=0.3, random_state=2).tensor
    errors = []
    for size, revisit in ((260, 260), (65, 260), (65, 100)):
        model = tc.CPRegressor(2, prior="fixed", interactions="cp", revisit=revisit, random_state=0)
        for a in range(0, 260, size):
            model.partial_fit(tensor.coords[a : a + size], tensor.values[a : a + size])
        errors.append(np.std(model.predict(tensor) - tensor.values))
        assert (model._result.stream.kept is not None) == (revisit == 260)
    assert errors[0] < 0.1
    assert errors[1] == errors[0]


def test_revisit_refuses_what_has_no_messages():
    X, y = entries("regressor")
    refused = [
        (
            {"method": "vmp", "revisit": 5},
            r"method 'vmp' cannot take revisit=5; use revisit=0, or one of the methods \['cep'\]",
        ),
        (
            {"messages": "averaged", "revisit": 5},
            "with messages='averaged' cannot take revisit=5; use messages='full', or revisit=0",
        ),
        ({"revisit": -1}, "revisit must be an integer >= 0; got -1"),
        ({"revisit": 2.5}, "revisit must be an integer >= 0; got 2.5"),
    ]
    for params, sentence in refused:
        model = new("regressor", **params)
        with pytest.raises(ValueError, match=sentence):
            model.partial_fit(X, y)
        assert not hasattr(model, "n_batches_")
