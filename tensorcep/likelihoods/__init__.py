"""Likelihoods: y given the latent value f of its entry. A new one is one file and one line in LIKELIHOODS."""

from __future__ import annotations

from typing import Any

from tensorcep.core.checks import check_choice
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.binomial import BINOMIAL
from tensorcep.likelihoods.gaussian import GAUSSIAN
from tensorcep.likelihoods.logit import LOGIT, LOGIT_MACKAY
from tensorcep.likelihoods.negbinomial import NEGBINOMIAL
from tensorcep.likelihoods.poisson import POISSON
from tensorcep.likelihoods.poisson_square import POISSON_SQUARE
from tensorcep.likelihoods.probit import PROBIT
from tensorcep.likelihoods.step import STEP
from tensorcep.likelihoods.tobit import TOBIT

LIKELIHOODS: dict[str, Likelihood] = {
    record.name: record
    for record in (
        GAUSSIAN,
        PROBIT,
        LOGIT,
        POISSON,
        NEGBINOMIAL,
        BINOMIAL,
        TOBIT,
        STEP,
        LOGIT_MACKAY,
        POISSON_SQUARE,
    )
}


def get_likelihood(name: Any) -> Likelihood:
    """Return the likelihood of this name.

    Parameters
    ----------
    name : str
        One that LIKELIHOODS lists, such as "probit".

    Returns
    -------
    Likelihood

    Raises
    ------
    ValueError
        For an unknown name; the error lists what exists.
    """
    return LIKELIHOODS[check_choice("likelihood", name, LIKELIHOODS)]


def names_of(kind: str) -> tuple[str, ...]:
    """The likelihoods of "values", "labels" or "counts"; estimators of labels and of counts offer theirs by name."""
    return tuple(name for name, record in LIKELIHOODS.items() if record.observes == kind)


__all__ = ["LIKELIHOODS", "Likelihood", "get_likelihood", "names_of"]
