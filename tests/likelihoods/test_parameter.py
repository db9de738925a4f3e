"""What is learned of a likelihood: laws, their divergence, and the expected update of a dispersion."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import gammaln

from tensorcep.core.random import new_stream
from tensorcep.kernels.slots import LANES
from tensorcep.likelihoods import LIKELIHOODS
from tensorcep.likelihoods.negbinomial import (
    DispersionLaw,
    DispersionParameter,
    draw_tables,
    expected_tables,
    softplus,
)
from tensorcep.likelihoods.parameters.base import Gamma, gammas


def test_likelihoods_say_what_is_learned_of_them():
    named = {name: record.parameter.name for name, record in LIKELIHOODS.items() if record.parameter is not None}
    known = {"gaussian": "noise_precision", "tobit": "noise_precision", "negbinomial": "dispersion"}
    assert known.items() <= named.items()
    for record in LIKELIHOODS.values():
        if record.parameter is not None:
            assert record.parameter.is_precision == (record.parameter.name == "noise_precision")


def test_divergence_of_a_law_is_that_of_its_density_from_the_prior():
    law, prior = Gamma(np.array([2.5, 0.7]), np.array([1.5, 3.0])), (1.2, 0.4)
    wanted = 0.0
    for a, b in zip(*law, strict=True):
        q, p = stats.gamma(a, scale=1 / b), stats.gamma(prior[0], scale=1 / prior[1])
        wanted -= integrate.quad(lambda x, q=q, p=p: q.pdf(x) * (q.logpdf(x) - p.logpdf(x)), 0.0, 60.0, limit=200)[0]
    assert -gammas(*law, *prior).divergence == pytest.approx(wanted, rel=1e-6)
    np.testing.assert_allclose(law.mean, [2.5 / 1.5, 0.7 / 3.0])


def test_draws_of_a_law_have_its_mean_and_variance(rng):
    law = Gamma(np.full(100_000, 2.5), np.full(100_000, 1.5))
    draws = law.draw(rng)
    assert abs(draws.mean() - 2.5 / 1.5) < 6.0 * draws.std() / np.sqrt(draws.size)
    assert draws.var() == pytest.approx(2.5 / 1.5**2, rel=0.05)
    assert (Gamma(np.full(1000, 1e-4), np.ones(1000)).draw(rng) > 0.0).all()


def test_tables_of_counts_are_drawn_with_their_expected_number():
    y, r = 9.0, 1.7
    shape = (2000, LANES)
    tables = np.empty(shape)
    draw_tables(0, 2000, np.full(shape, y), np.ones(shape), np.full(shape, r), (1, 2, 3), tables, new_stream())
    wanted = sum(r / (r + n) for n in range(9))
    assert expected_tables(np.array([y]), np.array([r]))[0] == pytest.approx(wanted, rel=1e-12)
    assert abs(tables.mean() - wanted) < 6.0 * tables.std() / np.sqrt(tables.size)


def test_softplus_of_a_known_value_is_a_special_case_of_the_expected_one():
    f = np.linspace(-30.0, 30.0, 13)
    np.testing.assert_allclose(softplus(f), np.log1p(np.exp(f)), rtol=1e-12)
    np.testing.assert_allclose(softplus(f, f * f), softplus(f), rtol=1e-12, atol=1e-14)
    spread = softplus(f, f * f + 1.0)
    assert (spread > softplus(f)).all()


def test_every_round_of_the_expected_update_raises_the_bound():
    """With known latent values the bound in the law of r alone is that of a coordinate ascent."""
    prior = (1.0, 0.3)
    y, f = np.array([0.0, 3.0, 11.0, 1.0]), np.array([0.2, -0.4, 0.9, 0.1])
    counts = np.zeros(4, dtype=np.int64), y, np.ones(4)
    rate, parameter = np.array([softplus(f).sum()]), DispersionParameter(prior, counts=counts)

    def bound(law):
        return parameter.bound(DispersionLaw(law, None)) - float(rate[0] * law.mean[0])

    laws = [Gamma(np.array([1.0]), np.array([2.0]))]
    for _ in range(3):
        laws.append(parameter.law_of_counts(DispersionLaw(laws[-1], None), rate))
    bounds = [bound(law) for law in laws]
    assert bounds[1] > bounds[0]
    assert (np.diff(bounds) > -1e-9).all()
    r = np.linspace(1e-3, 80.0, 400_000)  # the bound is below the integral over r
    log_joint = stats.gamma(prior[0], scale=1 / prior[1]).logpdf(r) - r * rate[0]
    log_joint += (gammaln(y[:, None] + r) - gammaln(r) - gammaln(y[:, None] + 1.0)).sum(axis=0)
    assert bounds[-1] < np.log(np.exp(log_joint).sum() * (r[1] - r[0]))
