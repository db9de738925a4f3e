"""How a stream begins where its prior is left to it: the first entries are kept, and fitted again.

What the first posterior of a stream gets wrong later batches hardly mend, and a few entries per row tell nothing of
the factors. So entries are kept until there are enough, and a few times on the way all of them are fitted anew, as
`fit` would. Each time the prior is chosen that predicts some of them, which were left out, better: the paper's
positive rows, which stand for values above the least one, or rows whose prior is learned, about the mean of the values.
Labels and counts are learned with the former batch by batch, if there are more than one holds (`in_batches`).
A stream that forgets chooses with its first batch, and keeps none.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.core.loop import Run
from tensorcep.core.packing import offsets
from tensorcep.cp.estimators.entries import Entries
from tensorcep.cp.estimators.plan import FitPlan, plan_fit
from tensorcep.cp.estimators.weighting import WHOLE_REVISITED, with_power
from tensorcep.cp.plan import Plan
from tensorcep.cp.predict import observed_logpdf, observed_moments
from tensorcep.cp.settings.names import settings_for
from tensorcep.cp.starts import run_plan
from tensorcep.cp.stream.attempts import may_be_bold
from tensorcep.cp.stream.in_batches import BATCH, run_in_batches
from tensorcep.cp.stream.standing import Kept, Predicted, Standing
from tensorcep.likelihoods.record import Likelihood

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# Entries that are kept: so many for each element of the factors, and not more than the last number.
PER_ELEMENT, MOST_KEPT = 20, 100_000
# All are fitted again when there are so many times as many, and at the end; not within the last factor of the end.
GROWTH, NEAR_END = 2.0, 2.0
# Priors are compared on a tenth of the entries, of few on a fifth; with fewer entries than the last number, not at all.
HELD_OUT, FEW_HELD_OUT, FEW, FEWEST = 0.1, 0.2, 500, 100
# Fits that are compared get one start without pilots, so many sweeps, and of many entries so many; the prior then
# stays.
SWEEPS, SETTLED = 50, 5000
PRIORS = ("fixed", "learned")
# The log score of a fit that went astray.
LEAST = -1e100
UNKNOWN = Standing()
# How much each entry counts, and its extent.
Beside = tuple[np.ndarray | None, ...]
PLAIN_REVISITED = "revisit= holds entries without exposures or numbers of trials, which these have; use revisit=0."


class Way(NamedTuple):
    """A prior, and whether entries are learned with it batch by batch in place of together."""

    prior: str
    in_batches: bool = False


class Begun(NamedTuple):
    """What a stream knows after its first entries were fitted."""

    plan: FitPlan
    run: Run
    standing: Standing
    kept: Kept | None


def chooses_prior(model: BaseCP) -> bool:
    """Whether the prior of a stream is left to it."""
    return isinstance(model.prior, str) and model.prior == "auto"


def begin_with(
    model: BaseCP,
    entries: Entries,
    source: Any,
    standing: Standing = UNKNOWN,
    prior: str | None = None,
    power: np.ndarray | None = None,
    extent: np.ndarray | None = None,
) -> Begun:
    """Fit the first entries of a stream. The estimator is not changed.

    `source` is the tensor that the last of them came in, if one was given; `standing` is that of the stream so far,
    `prior` its prior where there is no more doubt of it, `power` (N,) how much each entry counts, `extent` (N,) their
    exposures or numbers of trials.

    Raises
    ------
    ValueError, TypeError
        If a parameter or a value is not allowed.
    """
    coords, values, shape, _ = entries
    beside = (power, extent)
    if not chooses_prior(model):
        plan = _plan(model, entries, source, beside)
        return Begun(plan, run_plan(plan.work), _begun(standing, plan, values, extent), None)
    model._checked_targets(values, model._asked_likelihood())
    if prior is None and len(values) >= FEWEST:
        found = _better_way(model, entries, source, beside, SETTLED)
        if found.way.in_batches and len(values) > SETTLED:  # more of them are likelier to be learned better together
            found = _better_way(model, entries, source, beside, len(values))
        way = found.way
        plan = _plan(_as(model, way), entries, source, beside, prior=way.prior)
        judged = {name: getattr(found.standing, name) for name in ("n", "gain", "square", "shares")}
        standing = _begun(standing, plan, values, extent)._replace(**judged)
        prior = way.prior if len(values) >= SETTLED and not way.in_batches else None
    else:
        way = Way(prior or PRIORS[0])
        plan = _plan(model, entries, source, beside, prior=way.prior)
        standing = _begun(standing, plan, values, extent)
    kept = Kept(coords, values, len(values), prior, power, extent)
    stays = model.forget == 0.0 and len(values) < enough(shape, plan.work.problem.rank)
    return Begun(plan, _run(model, plan.work, way), standing, kept if stays else None)


def _run(model: BaseCP, work: Plan, way: Way) -> Run:
    """The run of a plan, in this way."""
    if not way.in_batches:
        return run_plan(work)
    return run_in_batches(work, may_be_bold(settings_for(model.method, work.method.name)))


def _plan(model: BaseCP, entries: Entries, source: Any, beside: Beside, **how: Any) -> FitPlan:
    """The plan of a joint fit of a stream's entries, with how much they count and their extents.

    Raises
    ------
    ValueError, TypeError
        If a parameter, a value or a weight is not allowed.
    """
    power, extent = beside
    plan = _without_tries(plan_fit(model, entries, source, streaming=True, extent=extent, **how))
    if model.revisit and extent is not None:
        fail_value(PLAIN_REVISITED)
    if power is None:
        return plan
    if model.revisit:
        fail_value(WHOLE_REVISITED)
    return plan._replace(work=with_power(plan.work, power))


def _without_tries(plan: FitPlan) -> FitPlan:
    """The plan without many quick starts: all entries that are kept are fitted anew a few times on the way."""
    work = plan.work
    pilots = tuple(pilot._replace(problem=pilot.problem._replace(tries=False)) for pilot in work.pilots)
    return plan._replace(work=work._replace(problem=work.problem._replace(tries=False), pilots=pilots))


def _begun(standing: Standing, plan: FitPlan, values: np.ndarray, extent: np.ndarray | None) -> Standing:
    """The standing of a stream, with the values of its first batch."""
    return standing if standing.seen else standing.after(plan.work.problem.likelihood, values, extent=extent)


def enough(shape: Sequence[int], rank: int) -> int:
    """Entries after which a stream keeps no more."""
    return min(MOST_KEPT, PER_ELEMENT * rank * sum(shape))


def kept_with(
    model: BaseCP,
    kept: Kept | None,
    batch: tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None],
) -> Kept | None:
    """The entries that are kept and those of a batch (coords, values, powers, extents); None where none are kept."""
    if kept is None or model.forget > 0.0 or not chooses_prior(model):
        return None
    coords, values, *beside = batch
    power, extent = (
        _both((old, kept.values), (new, values)) for old, new in zip((kept.power, kept.extent), beside, strict=True)
    )
    both = np.concatenate([kept.coords, coords]), np.concatenate([kept.values, values])
    return Kept(*both, kept.fitted, kept.prior, power, extent)


def _both(*parts: tuple[np.ndarray | None, np.ndarray]) -> np.ndarray | None:
    """Numbers of entries, 1 where only others have some, of pairs of them and values; None where none has any."""
    if all(own is None for own, _ in parts):
        return None
    return np.concatenate([np.ones(len(y)) if own is None else own for own, y in parts])


def due(kept: Kept | None, shape: Sequence[int], rank: int) -> bool:
    """Whether all the entries that are kept are to be fitted again."""
    if kept is None:
        return False
    wanted, end = GROWTH * kept.fitted, enough(shape, rank)
    return len(kept.values) >= (end if wanted * NEAR_END > end else wanted)


class _Compared(NamedTuple):
    """The better way, and how the stream stands with the entries that were left out."""

    way: Way
    standing: Standing


def _better_way(model: BaseCP, entries: Entries, source: Any, beside: Beside, most: int) -> _Compared:
    """The way to learn that predicts entries better that were left out, of so many entries at most.

    Which entries these are follows from what all of them are, not from their order.
    """
    coords, values, shape, labels = entries
    order = np.lexsort((values, *coords.T))
    order = np.random.default_rng(len(order)).permutation(order)[:most]
    held, used = np.split(order, [int(len(order) * (HELD_OUT if len(order) >= FEW else FEW_HELD_OUT))])
    some = (coords[used], values[used], shape, labels)
    apart = tuple(None if part is None else part[used] for part in beside)
    extents = [None if beside[1] is None else beside[1][which] for which in (used, held)]
    found: dict[Way, tuple[Likelihood, Predicted]] = {}
    for way in _ways(model, len(used)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say, the fit to all entries says
            plan = _plan(_as(model, way), some, source, apart, prior=way.prior)
            predicted = _predicted(model, plan, way, coords[held], values[held], extents[1])
            found[way] = plan.work.problem.likelihood, predicted
    best = max(found, key=lambda way: float(found[way][1].score.mean()))
    likelihood, predicted = found[best]
    standing = Standing().after(likelihood, values[used], extent=extents[0])
    return _Compared(best, standing.after(likelihood, values[held], predicted, extents[1]))


def _ways(model: BaseCP, n: int) -> list[Way]:
    """The ways to learn n entries."""
    # entries that are revisited need the messages of one fit
    if model._asked_likelihood().observes not in ("labels", "counts") or model.revisit or n <= BATCH:
        return [Way(prior) for prior in PRIORS]
    return [Way("learned"), Way("fixed", in_batches=True)]


def _as(model: BaseCP, way: Way) -> BaseCP:
    """The estimator to learn in this way.

    A dispersion that is learned beside rows of which hardly anything is known explains all that these could, and later
    batches hardly bring it back: counts that are learned batch by batch are Poisson ones, if that is left open.
    """
    own = vars(model)
    left_open = [own.get(name) for name in ("likelihood", "dispersion")] == ["auto", "learned"]
    if not way.in_batches or not left_open:
        return model
    known = copy.copy(model)
    known.likelihood = "poisson"
    return known


def _predicted(
    model: BaseCP, plan: FitPlan, way: Way, coords: np.ndarray, values: np.ndarray, extent: np.ndarray | None
) -> Predicted:
    """Predictions of entries that are left out, with least log scores where a fit goes astray."""
    sweeps = min(SWEEPS, plan.work.max_iter)
    how: dict[str, Any] = {
        "callbacks": (),
        "verbose": False,
        "max_iter": sweeps,
        "starts": plan.work.starts[:1],
        "pilots": (),
    }
    posterior: Any = _run(model, plan.work._replace(**how), way).posterior
    least, likelihood = np.full(len(values), LEAST), plan.work.problem.likelihood
    if not (np.isfinite(posterior.Lam).all() and np.isfinite(posterior.eta).all()):
        return Predicted(np.full(len(values), LEAST), least)
    belief, rows = posterior.components(), coords + offsets(posterior.shape)[:-1]
    score = observed_logpdf(likelihood, belief, rows, model._checked_targets(values, likelihood), extent=extent)
    mean = observed_moments(likelihood, belief, rows, extent=extent)[0]
    return Predicted(mean, np.where(np.isfinite(score), score, least))
