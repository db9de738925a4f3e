"""The kinds of matrices: by what users call a likelihood, and how it is augmented. A new one is one line."""

from __future__ import annotations

import numpy as np
from scipy.special import logit, ndtri

from tensorcep.core.checks import check_choice, check_counts, check_size, check_zero_one, fail_value
from tensorcep.factor_models.drawn_sites import draw_gaussian, draw_noisy, draw_polya_gamma
from tensorcep.factor_models.expected_sites import (
    boehning_bounds,
    boehning_sites,
    gaussian_bounds,
    gaussian_sites,
    noisy_bounds,
    noisy_sites,
    polya_gamma_bounds,
    polya_gamma_sites,
    sites_of_squares,
)
from tensorcep.factor_models.normal_sites import (
    draw_limited,
    draw_probit,
    limited_bounds,
    limited_sites,
    probit_bounds,
    probit_sites,
)
from tensorcep.factor_models.relations import Kind, SiteForm
from tensorcep.likelihoods.censored import TOBIT
from tensorcep.likelihoods.gaussian import GAUSSIAN
from tensorcep.likelihoods.logit import LOGIT
from tensorcep.likelihoods.negbinomial import NEGBINOMIAL
from tensorcep.likelihoods.probit import PROBIT
from tensorcep.likelihoods.softplus import SOFTPLUS_POISSON

SOFTPLUS_CURVATURE = 0.17  # of -log softplus, rounded up (0.1671); times the count
LABELS_SCALE = 4.0  # a step of 1 in a probability of 1/2 is one of 4 in its logit
PROBIT_SCALE = 2.5  # and one of sqrt(2 pi) in its probit

CONJUGATE = SiteForm(gaussian_sites, gaussian_bounds, draw_gaussian, sites_of_squares)
POLYA_GAMMA = SiteForm(polya_gamma_sites, polya_gamma_bounds, draw_polya_gamma)
NOISY = SiteForm(noisy_sites, noisy_bounds, draw_noisy)
BOEHNING = SiteForm(boehning_sites, boehning_bounds)
HIDDEN = SiteForm(probit_sites, probit_bounds, draw_probit)
LIMIT = SiteForm(limited_sites, limited_bounds, draw_limited)


def _as_given(name: str, values: np.ndarray) -> np.ndarray:
    return check_size(name, values, least=0.0)


def _logit_of_mean(mean: np.ndarray, r: float) -> np.ndarray:
    return np.asarray(logit(0.01 + 0.98 * mean))


def _probit_of_mean(mean: np.ndarray, r: float) -> np.ndarray:
    return np.asarray(ndtri(0.01 + 0.98 * mean))


def _log_of_mean(mean: np.ndarray, r: float) -> np.ndarray:
    return np.asarray(np.log(mean + 0.01) - np.log(r))


def _mean(mean: np.ndarray, r: float) -> np.ndarray:
    return mean


def _itself(values: np.ndarray) -> np.ndarray:
    return values


def _logit_curvature(x: np.ndarray) -> float:
    return 0.25


def _softplus_curvature(x: np.ndarray) -> float:
    return 0.25 + SOFTPLUS_CURVATURE * float(x.max())


_REAL = Kind(GAUSSIAN, CONJUGATE, _as_given, _mean, _itself, theta="noise")
_LABELS = Kind(LOGIT, POLYA_GAMMA, check_zero_one, _logit_of_mean, _itself, LABELS_SCALE, curvature=_logit_curvature)
_PROBIT = Kind(PROBIT, HIDDEN, check_zero_one, _probit_of_mean, _itself, PROBIT_SCALE)
_COUNTS = Kind(NEGBINOMIAL, POLYA_GAMMA, check_counts, _log_of_mean, np.log1p, theta="r")
_RATES = Kind(SOFTPLUS_POISSON, BOEHNING, check_counts, _mean, np.log1p, curvature=_softplus_curvature)

# Real data with a limit, which `Link.limit` holds: values stay in the units of the model.
LIMITED = _REAL._replace(likelihood=TOBIT._replace(check_y=GAUSSIAN.check_y), form=LIMIT)

# By the words of a likelihood and of an augmentation; real data need none, so that every augmentation is the same.
KINDS: dict[tuple[str, str], Kind] = {
    ("gaussian", "direct"): _REAL,
    ("bernoulli", "direct"): _LABELS,
    ("bernoulli", "noise"): _LABELS._replace(form=NOISY),
    ("bernoulli", "boehning"): _LABELS._replace(form=BOEHNING),
    ("probit", "direct"): _PROBIT,
    ("negbinomial", "direct"): _COUNTS,
    ("negbinomial", "noise"): _COUNTS._replace(form=NOISY),
    ("poisson", "boehning"): _RATES,
}
LIKELIHOODS = tuple(dict.fromkeys(likelihood for likelihood, _ in KINDS))
# What others call them, the shell's words for tensors among these.
SAME_AS = {
    **dict.fromkeys(("logit", "logistic", "binary", "binomial"), "'bernoulli'"),
    **dict.fromkeys(("normal", "real"), "'gaussian'"),
    **dict.fromkeys(("counts", "count", "negative-binomial", "nb"), "'negbinomial' (or 'poisson')"),
}
AUGMENTATIONS = tuple(dict.fromkeys(augmentation for _, augmentation in KINDS))


def check_likelihood(likelihood: str) -> str:
    """Return a word of LIKELIHOODS; the error names the one that stands for a word of the shell or of other packages.

    Raises
    ------
    ValueError
    """
    instead = SAME_AS.get(likelihood) if isinstance(likelihood, str) else None
    if instead is not None:
        fail_value(f"likelihood {likelihood!r} is called {instead} in factor models; use that.")
    return check_choice("likelihood", likelihood, LIKELIHOODS)


def kind_of(likelihood: str, augmentation: str) -> Kind:
    """The kind of these two words.

    Raises
    ------
    ValueError
        If one of them does not exist, or they do not go together.
    """
    check_likelihood(likelihood)
    check_choice("augmentation", augmentation, AUGMENTATIONS)
    if (likelihood, augmentation) not in KINDS:
        fail_value(
            f"likelihood {likelihood!r} does not go with augmentation {augmentation!r}; Boehning's bound is for "
            "'bernoulli' and 'poisson', the Polya-Gamma ones for 'bernoulli' and 'negbinomial'; for 'probit' there is "
            "'direct' alone."
        )
    return KINDS[likelihood, augmentation]


def augmentation_of(likelihood: str) -> str:
    """The augmentation of a likelihood where none is asked for: the direct one, if there is that.

    Raises
    ------
    ValueError
        For an unknown likelihood.
    """
    check_likelihood(likelihood)
    return next(augmentation for augmentation in AUGMENTATIONS if (likelihood, augmentation) in KINDS)
