"""Inference methods for the CP model, by name."""

from __future__ import annotations

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.core.loop import AnyMethod
from tensorcep.cp.cep.method import CEP
from tensorcep.cp.gibbs.method import GIBBS, PG_GIBBS
from tensorcep.cp.laplace.method import LAPLACE
from tensorcep.cp.meanfield.method import PG_VB, VMP
from tensorcep.cp.wopt import WOPT
from tensorcep.likelihoods.record import Likelihood

METHODS: dict[str, AnyMethod] = {method.name: method for method in (CEP, LAPLACE, VMP, WOPT, GIBBS, PG_VB, PG_GIBBS)}
# Methods that learn from streams.
STREAMING = ("cep", "vmp")


def proposes_rows(name: str, likelihood: Likelihood) -> bool:
    """Whether a method is a sampler that may turn rows down, since no variable makes entries Gaussian."""
    return name == GIBBS.name and likelihood.normal is None


def get_method(name: str, likelihood: Likelihood, learning: bool = False, rows: str | None = None) -> AnyMethod:
    """Return the method called `name`, after checking that it can use the likelihood and, if asked to, learn the prior.

    `rows` is what the prior knows of rows, in words.

    Raises
    ------
    ValueError
        If there is no such method, the likelihood lacks a part that it needs, or it cannot learn the prior, or one that
        depends on what is known of the rows; the sentence lists what would do.
    """
    method = METHODS[check_choice("method", name, METHODS)]
    missing = method.lacks(likelihood)
    if missing:
        fits = [m.name for m in METHODS.values() if not m.lacks(likelihood)]
        fail_value(
            f"method {name!r} needs {', '.join(missing)}, which the likelihood {likelihood.name!r} does not have; "
            f"use one of {fits}."
        )
    if rows is not None and not method.takes_features:
        fits = [m.name for m in METHODS.values() if m.takes_features and not m.lacks(likelihood)]
        fail_value(f"method {name!r} cannot take {rows} as a prior; use one of the methods {fits}.")
    if learning and not method.learns_prior:
        fits = [m.name for m in METHODS.values() if m.learns_prior and not m.lacks(likelihood)]
        fail_value(f"method {name!r} cannot learn the prior; use prior='fixed', or one of the methods {fits}.")
    return method
