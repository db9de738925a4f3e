"""Likelihoods: y given the latent value f of its entry. A new one is one file and one line in LIKELIHOODS."""

from __future__ import annotations

from typing import Any

from tensorcep._checks import check_choice
from tensorcep.likelihoods._record import Likelihood
from tensorcep.likelihoods.gaussian import GAUSSIAN
from tensorcep.likelihoods.logit import LOGIT
from tensorcep.likelihoods.negbinomial import NEGBINOMIAL
from tensorcep.likelihoods.poisson import POISSON
from tensorcep.likelihoods.probit import PROBIT

LIKELIHOODS: dict[str, Likelihood] = {
    record.name: record
    for record in (
        GAUSSIAN,
        PROBIT,
        LOGIT,
        POISSON,
        NEGBINOMIAL,
    )
}


def get_likelihood(name: Any) -> Likelihood:
    """Return the likelihood of this name.

    Parameters
    ----------
    name : str
        "gaussian", "probit", "logit", "poisson" or "negbinomial".

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError
        For an unknown name; the error lists what exists.
    """
    return LIKELIHOODS[check_choice("likelihood", name, LIKELIHOODS)]


__all__ = ["LIKELIHOODS", "Likelihood", "get_likelihood"]
