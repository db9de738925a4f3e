"""Moments of cavities that are kept from pass to pass: those that every pass would compute, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import fit, problem

from tensorcep import CEP, CPClassifier
from tensorcep.cp import settings


@each(
    ("method", "likelihood", "options"),
    [
        ("cep", "probit", {"damping": 0.5}),
        ("cep", "gaussian", {}),
        ("cep", "tobit", {"damping": "adaptive"}),
        ("cep", "poisson", {"damping": 0.5}),
    ],
)
def test_kept_cavities_change_no_bit(rng, monkeypatch, method, likelihood, options):
    _, _, p = problem(rng, likelihood=likelihood)
    kept = fit(p, 5, method=method, **options)
    assert len(kept.state.own.cavities.moments) == len(p.entries.rows)
    monkeypatch.setattr(settings, "MOST_KEPT", 0)
    anew = fit(p, 5, method=method, **options)
    assert not len(anew.state.own.cavities.moments)
    for part in ("Lam", "eta"):
        np.testing.assert_array_equal(getattr(kept.posterior, part), getattr(anew.posterior, part))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_kept_cavities_are_those_before_the_prior_is_learned_no_more(rng, monkeypatch):
    coords, y, _ = problem(rng, likelihood="probit")
    fits = []
    for most in (settings.MOST_KEPT, 0):
        monkeypatch.setattr(settings, "MOST_KEPT", most)
        one = CEP(n_starts=1, n_ensemble=1)
        model = CPClassifier(2, method=one, prior="learned", interactions="cp", max_iter=6, tol=0.0, random_state=0)
        fits.append(model.fit(coords, (y > 0.0).astype(float)).posterior_)
    np.testing.assert_array_equal(fits[0].eta, fits[1].eta)


@each("options", [{"schedule": "parallel"}, {"moments": "posterior"}])
def test_no_cavities_are_kept_where_nobody_reads_them_again(rng, options):
    _, _, p = problem(rng, likelihood="probit")
    assert not len(fit(p, 1, damping=0.5, **options).state.own.cavities.moments)
