"""How a stream begins where its prior is left to it: the first entries are kept, and fitted together.

What the first posterior of a stream gets wrong later batches hardly mend, and a few entries per row tell nothing of
the factors. So entries are kept until there are enough, and whenever they have doubled all of them are fitted anew,
as `fit` would. Each time the prior is chosen that predicts some of them, which were left out, better: the paper's
positive rows, which stand for values above the least one, or rows whose prior is learned, about the mean of the values.
A stream that forgets chooses with its first batch, and keeps none.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorcep.core.loop import Run
from tensorcep.core.packing import offsets
from tensorcep.cp.estimators.entries import Entries
from tensorcep.cp.estimators.plan import FitPlan, plan_fit
from tensorcep.cp.predict import observed_logpdf, observed_moments
from tensorcep.cp.starts import run_plan
from tensorcep.cp.stream.standing import Kept, Standing

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# Entries that are kept: so many for each element of the factors, and not more than the last number.
PER_ELEMENT, MOST_KEPT = 20, 20_000
# All are fitted again when there are so many times as many.
GROWTH = 2.0
# Priors are compared on a tenth of the entries, of few on a fifth; with fewer entries than the last number, not at all.
HELD_OUT, FEW_HELD_OUT, FEW, FEWEST = 0.1, 0.2, 500, 100
# The fits that are compared get so many sweeps.
SWEEPS = 60
# A prior stays when, of so many entries at least, it predicts those left out better by so many standard errors.
SETTLED, SURE = 5000, 4.0
PRIORS = ("fixed", "learned")
# The log score of a fit that went astray.
LEAST = -1e100
UNKNOWN = Standing()


class Begun(NamedTuple):
    """What a stream knows after its first entries were fitted together."""

    plan: FitPlan
    run: Run
    standing: Standing
    kept: Kept | None


def chooses_prior(model: BaseCP) -> bool:
    """Whether the prior of a stream is left to it."""
    return isinstance(model.prior, str) and model.prior == "auto"


def begin_with(
    model: BaseCP, entries: Entries, source: Any, standing: Standing = UNKNOWN, prior: str | None = None
) -> Begun:
    """Fit the first entries of a stream. The estimator is not changed.

    `source` is the tensor that the last of them came in, if one was given; `standing` is that of the stream so far,
    `prior` its prior where there is no more doubt of it.

    Raises
    ------
    ValueError, TypeError
        If a parameter or a value is not allowed.
    """
    coords, values, shape, _ = entries
    standing = standing if standing.seen else standing.after(values, None)
    if not chooses_prior(model):
        plan = plan_fit(model, entries, source, streaming=True)
        return Begun(plan, run_plan(plan.work), standing, None)
    model._checked_targets(values, model._asked_likelihood())
    if prior is None and len(values) >= FEWEST:
        found = _better_prior(model, entries, source)
        standing = standing._replace(n=found.standing.n, gain=found.standing.gain, square=found.standing.square)
        prior = found.prior if found.is_sure else None
        plan = plan_fit(model, entries, source, streaming=True, prior=found.prior)
    else:
        plan = plan_fit(model, entries, source, streaming=True, prior=prior or PRIORS[0])
    kept = Kept(coords, values, len(values), prior)
    stays = model.forget == 0.0 and len(values) < enough(shape, plan.work.problem.rank)
    return Begun(plan, run_plan(plan.work), standing, kept if stays else None)


def enough(shape: Sequence[int], rank: int) -> int:
    """Entries after which a stream keeps no more."""
    return min(MOST_KEPT, PER_ELEMENT * rank * sum(shape))


def kept_with(model: BaseCP, kept: Kept | None, coords: np.ndarray, values: np.ndarray) -> Kept | None:
    """The entries that are kept and those of a batch; None where none are to be kept."""
    if kept is None or model.forget > 0.0 or not chooses_prior(model):
        return None
    both = np.concatenate([kept.coords, coords]), np.concatenate([kept.values, values])
    return Kept(*both, kept.fitted, kept.prior)


def due(kept: Kept | None, shape: Sequence[int], rank: int) -> bool:
    """Whether all the entries that are kept are to be fitted again."""
    return kept is not None and len(kept.values) >= min(GROWTH * kept.fitted, enough(shape, rank))


class _Compared(NamedTuple):
    """The better prior, how it stands with the entries that were left out, and whether there is no doubt of it."""

    prior: str
    standing: Standing
    is_sure: bool


def _better_prior(model: BaseCP, entries: Entries, source: Any) -> _Compared:
    """The prior that predicts entries better that were left out.

    Which entries these are follows from what all of them are, not from their order.
    """
    coords, values, shape, labels = entries
    order = np.lexsort((values, *coords.T))
    order = np.random.default_rng(len(order)).permutation(order)[:MOST_KEPT]
    held, used = np.split(order, [int(len(order) * (HELD_OUT if len(order) >= FEW else FEW_HELD_OUT))])
    some = (coords[used], values[used], shape, labels)
    scores, means = [], []
    for prior in PRIORS:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say, the fit to all entries says
            plan = plan_fit(model, some, source, streaming=True, prior=prior)
            score, mean = _predicted(model, plan, coords[held], values[held])
        scores.append(score)
        means.append(mean)
    best = int(np.argmax(np.mean(scores, axis=1)))
    standing = Standing().after(values[used], None).after(values[held], means[best])
    lead = scores[best] - scores[1 - best]
    is_sure = len(order) >= SETTLED and not standing.is_doubtful
    return _Compared(PRIORS[best], standing, is_sure and bool(lead.sum() > SURE * np.sqrt(np.sum(lead**2))))


def _predicted(model: BaseCP, plan: FitPlan, coords: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log scores (n,) of entries that are left out, of least ones where a fit goes astray, and predictive means."""
    sweeps = min(SWEEPS, plan.work.max_iter)
    posterior: Any = run_plan(plan.work._replace(callbacks=(), verbose=False, max_iter=sweeps)).posterior
    least, likelihood = np.full(len(values), LEAST), plan.work.problem.likelihood
    if not (np.isfinite(posterior.Lam).all() and np.isfinite(posterior.eta).all()):
        return least, least
    belief, rows = posterior.components(), coords + offsets(posterior.shape)[:-1]
    score = observed_logpdf(likelihood, belief, rows, model._checked_targets(values, likelihood))
    return np.where(np.isfinite(score), score, least), observed_moments(likelihood, belief, rows)[0]
