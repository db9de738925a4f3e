"""Inference methods for the CP model, by name."""

from __future__ import annotations

from tensorcep._checks import check_choice, fail_value
from tensorcep.inference._run import Method
from tensorcep.inference.cep import CEP
from tensorcep.inference.vmp import VMP
from tensorcep.inference.wopt import WOPT
from tensorcep.likelihoods._record import Likelihood

METHODS: dict[str, Method] = {method.name: method for method in (CEP, VMP, WOPT)}


def get_method(name: str, likelihood: Likelihood) -> Method:
    """Return the method called `name`, after checking that it can use the likelihood.

    Raises
    ------
    ValueError
        If there is no such method, or the likelihood lacks a part that it needs; the sentence lists what would do.
    """
    method = METHODS[check_choice("method", name, METHODS)]
    missing = method.lacks(likelihood)
    if missing:
        fits = [m.name for m in METHODS.values() if not m.lacks(likelihood)]
        fail_value(
            f"method {name!r} needs {', '.join(missing)}, which the likelihood {likelihood.name!r} does not have; "
            f"use one of {fits}."
        )
    return method
