"""Simulated tensors: what they are made of, their distribution, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each

from tensorcep.cp.simulate import simulate_cp


def by_hand(sim):
    total = np.full(sim.tensor.nnz, sim.intercept)
    for n, cell in enumerate(sim.tensor.coords):
        rows = [factor[i] for factor, i in zip(sim.factors, cell, strict=True)]
        total[n] += np.prod(rows, axis=0).sum()
    return total


@each("shape", [(7, 5), (6, 5, 4), (4, 3, 3, 2)])
def test_simulate_cp_latent_is_the_cp_sum(shape):
    sim = simulate_cp(shape, 3, 20, intercept=-0.7, random_state=1)
    assert sim.tensor.shape == shape
    assert [f.shape for f in sim.factors] == [(n, 3) for n in shape]
    np.testing.assert_allclose(sim.latent, by_hand(sim))


def test_simulate_cp_cells_are_distinct_and_uniform():
    counts = np.zeros((3, 4))
    for seed in range(600):
        coords = simulate_cp((3, 4), 1, 5, random_state=seed).tensor.coords
        assert len(np.unique(coords, axis=0)) == 5
        counts[tuple(coords.T)] += 1
    share = 5 / 12
    assert (np.abs(counts - 600 * share) < 6 * np.sqrt(600 * share * (1 - share))).all()


def test_simulate_cp_can_fill_every_cell():
    assert simulate_cp((4, 5), 2, density=1.0, random_state=0).tensor.nnz == 20
    assert simulate_cp((40, 50), 2, density=0.05, random_state=0).tensor.nnz == 100


def test_simulate_cp_same_seed_gives_same_tensor():
    first, again, other = (simulate_cp((9, 8, 7), 2, 50, random_state=s) for s in (3, 3, 4))
    np.testing.assert_array_equal(first.tensor.values, again.tensor.values)
    np.testing.assert_array_equal(first.tensor.coords, again.tensor.coords)
    assert not np.array_equal(first.tensor.values, other.tensor.values)


def test_simulate_cp_factors_follow_the_prior():
    sim = simulate_cp((3000, 2000), 4, 10, prior_mean=[1.0, -2.0], prior_sd=[0.5, 3.0], random_state=5)
    for factor, mean, precision in zip(sim.factors, sim.prior.mean, sim.prior.precision, strict=True):
        sd = precision**-0.5
        assert abs(factor.mean() - mean) < 6 * sd / np.sqrt(factor.size)
        assert abs(factor.std() / sd - 1) < 6 / np.sqrt(2 * factor.size)
    assert sim.prior.precision[0] == pytest.approx(4.0)


@each(("mean", "sd"), [(0.0, 1.0), (1.5, 0.4), ([0.0, 1.0, 2.0], [2.0, 0.1, 1.0])])
def test_simulate_cp_latent_sd_holds_over_draws(mean, sd):
    rng = np.random.default_rng(6)
    draws = [
        simulate_cp((2, 2, 2), 20, 1, prior_mean=mean, prior_sd=sd, latent_sd=1.7, random_state=rng).latent[0]
        for _ in range(4000)
    ]
    # 20 terms are near enough to a Gaussian for the standard error of a standard deviation, sd / sqrt(2 n), twice over
    assert abs(np.std(draws) / 1.7 - 1) < 6 * 2 / np.sqrt(2 * 4000)


def test_simulate_cp_latent_sd_keeps_the_shape_of_the_prior():
    plain, scaled = (simulate_cp((5, 4), 2, 6, prior_mean=0.5, latent_sd=s, random_state=8) for s in (None, 0.1))
    ratio = scaled.factors[0] / plain.factors[0]
    np.testing.assert_allclose(ratio, ratio[0, 0])
    np.testing.assert_allclose(scaled.factors[1] / plain.factors[1], ratio[0, 0])
    assert scaled.prior.mean[0] == pytest.approx(0.5 * ratio[0, 0])


def test_simulate_cp_gaussian_noise_has_the_precision():
    sim = simulate_cp((60, 50, 40), 2, 20_000, noise_precision=4.0, random_state=2)
    noise = sim.tensor.values - sim.latent
    assert abs(noise.mean()) < 6 * 0.5 / np.sqrt(20_000)
    assert abs(noise.std() / 0.5 - 1) < 6 / np.sqrt(2 * 20_000)
    assert sim.theta == 4.0


@each("likelihood", ["probit", "logit"])
def test_simulate_cp_labels_follow_the_link(likelihood):
    sim = simulate_cp((60, 50, 40), 2, 20_000, likelihood=likelihood, latent_sd=1.0, random_state=2)
    assert set(sim.tensor.values) == {0.0, 1.0}
    from scipy.special import expit, ndtr

    p = {"probit": ndtr, "logit": expit}[likelihood](sim.latent)
    for low, high in [(0.0, 0.3), (0.3, 0.7), (0.7, 1.0)]:
        inside = (p >= low) & (p < high)
        error = (sim.tensor.values[inside] - p[inside]).sum()
        assert abs(error) < 6 * np.sqrt((p * (1 - p))[inside].sum())


def test_simulate_cp_counts_have_the_rate():
    sim = simulate_cp((60, 50, 40), 2, 20_000, likelihood="poisson", latent_sd=0.5, intercept=1.0, random_state=2)
    rate = np.exp(sim.latent)
    assert (sim.tensor.values == np.round(sim.tensor.values)).all()
    assert abs((sim.tensor.values - rate).sum()) < 6 * np.sqrt(rate.sum())
    assert abs(((sim.tensor.values - rate) ** 2 / rate).mean() - 1) < 0.1


@each(
    ("change", "message"),
    [
        ({"shape": (5,)}, "shape must hold one integer >= 1 for each of at least two modes"),
        ({"rank": 0}, "rank must be an integer >= 1; got 0"),
        ({"n_entries": None}, "exactly one of n_entries and density must be given; got none"),
        ({"density": 0.5}, "exactly one of n_entries and density must be given; got n_entries and density"),
        ({"n_entries": 21}, "n_entries must be an integer from 1 to 20; got 21"),
        ({"n_entries": None, "density": 1.5}, r"density must be a number in \(0, 1\]; got 1.5"),
        ({"likelihood": "cauchy"}, "cauchy"),
        ({"likelihood": "probit", "noise_precision": 1.0}, "noise_precision has a meaning only with likelihood='gau"),
        ({"noise_precision": 0.0}, "noise_precision must be a number > 0; got 0"),
        ({"prior_sd": [1.0, 0.0]}, "prior_sd must be a number > 0; got 0"),
        ({"prior_mean": [1.0, 0.0, 0.0]}, "prior_mean must be one number, or one for each of the 2 modes; got 3"),
        ({"latent_sd": -1.0}, "latent_sd must be a number > 0; got -1"),
        ({"intercept": np.inf}, "intercept must be a number finite; got inf"),
        ({"random_state": "x"}, "random_state must be None"),
    ],
)
def test_simulate_cp_refuses(change, message):
    with pytest.raises(ValueError, match=message):
        simulate_cp(**({"shape": (5, 4), "rank": 2, "n_entries": 6} | change))
