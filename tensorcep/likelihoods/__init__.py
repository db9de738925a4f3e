"""Likelihoods: y given the latent value f of its entry. A new one is one file and one line in LIKELIHOODS.

The words of all families and of the shell are those of this table, and ALIASES of them.
"""

from __future__ import annotations

from typing import Any

from tensorcep.core.checks import check_choice
from tensorcep.likelihoods.base import Likelihood
from tensorcep.likelihoods.binary import PROBIT, STEP
from tensorcep.likelihoods.binomial import BINOMIAL
from tensorcep.likelihoods.gaussian import GAUSSIAN
from tensorcep.likelihoods.logit import LOGIT, LOGIT_MACKAY
from tensorcep.likelihoods.negbinomial import NEGBINOMIAL
from tensorcep.likelihoods.poisson import POISSON, POISSON_SQUARE
from tensorcep.likelihoods.tobit import TOBIT

_EVERY: tuple[Likelihood, ...] = (GAUSSIAN, PROBIT, LOGIT, POISSON, NEGBINOMIAL)
_EVERY += (BINOMIAL, TOBIT, STEP, LOGIT_MACKAY, POISSON_SQUARE)
LIKELIHOODS = {likelihood.name: likelihood for likelihood in _EVERY}
# What models of matrices call a likelihood.
ALIASES = {"bernoulli": "logit"}
# Words for what a fit decides: one of the likelihoods of counts, and a law of ordered levels.
DECIDED = {"counts": ("counts",), "levels": ("ordinal",)}


def get_likelihood(name: Any) -> Likelihood:
    """Return the likelihood of this name, such as "probit", or alias; a ValueError lists what exists."""
    name = ALIASES.get(name, name) if isinstance(name, str) else name
    return LIKELIHOODS[check_choice("likelihood", name, LIKELIHOODS)]


def names_of(kind: str) -> tuple[str, ...]:
    """The likelihoods of "values", "labels" or "counts"; estimators of labels and of counts offer theirs by name."""
    return tuple(name for name, record in LIKELIHOODS.items() if record.observes == kind)


def words_of(*kinds: str) -> tuple[str, ...]:
    """What a user may say for "values", "labels", "counts" or "levels", those that a fit decides first."""
    return tuple(word for kind in kinds for word in (*DECIDED.get(kind, ()), *names_of(kind)))


__all__ = ["ALIASES", "LIKELIHOODS", "Likelihood", "get_likelihood", "names_of", "words_of"]
