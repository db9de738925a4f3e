"""How a stream begins where its prior is left to it, or learned from what is known of rows: by entries that are kept.

What the first posterior of a stream gets wrong later batches hardly mend, and a few entries per row tell nothing of
the factors. So entries are kept until there are enough, and a few times on the way all of them are fitted anew, as
`fit` would. Each time the prior is chosen that predicts some of them, which were left out, better: the paper's
positive rows, which stand for values above the least one, or rows whose prior is learned, about the mean of the values.
Where columns are left open, too, the latter may have main effects and pairs of modes beside the components, if these
predict the entries left out better beyond chance, and by what matters. A prior per mode (Features, Series, Graph)
leaves that choice alone.
Labels and counts are learned with the former batch by batch, if there are more than one holds (`in_batches`). Where
neither finds anything, many quick starts are tried, too: products of more than three modes are hard to find.
A stream that forgets chooses with its first batch, and keeps none. One whose prior was named keeps entries as long as
its reservoir holds all of them: what a few of them made of the factors, revisits alone may not mend. Else its first
entries are watched: now and then the predictions of the later half, each made before its batch was learned, are held
against those of a fit to the earlier half.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.chance import THRESHOLDS, beyond_chance
from tensorcep.core.checks import fail_value
from tensorcep.core.loop import Run
from tensorcep.core.packing import offsets
from tensorcep.core.sums import weighted_mean
from tensorcep.cp.fit.select import plan_fit
from tensorcep.cp.fit.validation import falls_short
from tensorcep.cp.fitted.predict import observed_logpdf, observed_moments
from tensorcep.cp.inputs.coordinates import Entries
from tensorcep.cp.inputs.weights import WHOLE_REVISITED
from tensorcep.cp.model.subsets import telling
from tensorcep.cp.plan.auto import leaves_columns, wide_columns
from tensorcep.cp.plan.plan import Plan
from tensorcep.cp.plan.spec import FitSpec, is_auto
from tensorcep.cp.settings.registry import settings_for
from tensorcep.cp.stream.adf import StreamState
from tensorcep.cp.stream.attempts import may_be_bold
from tensorcep.cp.stream.in_batches import BATCH, run_in_batches
from tensorcep.cp.stream.standing import LEAST_SCORE, MOST, WARNED, Kept, Predicted, Standing

# Entries that are kept: so many for each element of the factors, and not more than the last number.
PER_ELEMENT, MOST_KEPT = 20, 100_000
# All are fitted again when there are so many times as many, and at the end; not within the last factor of the end.
GROWTH, NEAR_END = 2.0, 2.0
# Of many entries so many are fitted to compare priors, and the prior then stays.
SETTLED = 5000
PRIORS = ("fixed", "learned")
# The log score of a fit that went astray.
LEAST = -1e100
UNKNOWN = Standing()
# How much each entry counts, and its extent.
Beside = tuple[np.ndarray | None, ...]
PLAIN_REVISITED = "revisit= holds entries without exposures or numbers of trials, which these have; use revisit=0."


class Way(NamedTuple):
    """A prior, whether entries are learned with it batch by batch in place of together, and from many quick starts.

    `wide` says whether rows have main effects and pairs of modes beside the components.
    """

    prior: str
    in_batches: bool = False
    tries: bool = False
    wide: bool = False


class Begun(NamedTuple):
    """What a stream knows after its first entries were fitted."""

    plan: Plan
    run: Run
    standing: Standing
    kept: Kept | None
    watched: Kept | None = None


def chooses_prior(spec: FitSpec) -> bool:
    """Whether the prior of a stream is left to it."""
    return is_auto(spec.prior)


def leaves_choice(spec: FitSpec) -> bool:
    """Whether entries left out may decide on the prior of a stream or on its columns."""
    return chooses_prior(spec) or isinstance(spec.prior, Mapping)


def keeps_entries(spec: FitSpec, n: int) -> bool:
    """Whether a stream keeps its first n entries, to fit them together: to choose, or as its reservoir has all."""
    return spec.forget == 0.0 and (leaves_choice(spec) or n <= spec.revisit)


def begin_with(
    spec: FitSpec,
    entries: Entries,
    source: Any,
    standing: Standing = UNKNOWN,
    prior: str | None = None,
    power: np.ndarray | None = None,
    extent: np.ndarray | None = None,
    has_main: bool = False,
) -> Begun:
    """Fit the first entries of a stream.

    `source` is the tensor that the last of them came in, if one was given; `standing` is that of the stream so far,
    `prior` its prior where there is no more doubt of it, `power` (N,) how much each entry counts, `extent` (N,) their
    exposures or numbers of trials; `has_main` says whether the fit so far has main effects.

    Raises
    ------
    ValueError, TypeError
        If a parameter or a value is not allowed.
    """
    coords, values, shape, _ = entries
    beside, n = (power, extent), _number_telling(values, power)
    if not leaves_choice(spec):
        plan = _plan(spec, entries, source, beside)
        rank, first = plan.problem.rank, Kept(coords, values, len(values), None, power, extent)
        begun = Begun(plan, plan.policy.run(plan), _begun(standing, plan, values, beside), None)
        if keeps_entries(spec, len(values)):
            return begun._replace(kept=first if n < enough(shape, rank) else None)
        if spec.forget == 0.0 and GROWTH * len(values) <= _watched_to(shape, rank):
            return begun._replace(watched=first._replace(score=np.zeros(len(values))))
        return begun
    spec.target.checked(values, spec.asked)
    run = None
    if prior is None and n >= THRESHOLDS.fewest_in_stream:
        one, plan, run = _learned(spec, entries, source, beside)
        judged = {name: getattr(one.standing, name) for name in ("n", "gain", "square", "shares", "score")}
        standing = _begun(standing, plan, values, beside)._replace(**judged)
        prior = one.way.prior if n >= SETTLED and not one.way.in_batches else None
    else:
        # a prior that stays does so with its columns
        way = Way(prior or PRIORS[0], wide=prior is not None and leaves_columns(spec) and has_main)
        plan = _plan(spec, entries, source, beside, way)
        standing = _begun(standing, plan, values, beside)
    kept = Kept(coords, values, len(values), prior, power, extent)
    stays = keeps_entries(spec, len(values)) and n < enough(shape, plan.problem.rank)
    return Begun(plan, run or plan.policy.run(plan), standing, kept if stays else None)


def _learned(spec: FitSpec, entries: Entries, source: Any, beside: Beside) -> tuple[_Tried, Plan, Run]:
    """The entries learned in the way that predicts some of them best."""
    tried, left_out = _tried(spec, entries, source, beside, SETTLED)
    # more are likelier to be learned better together
    if tried[0].way.in_batches and _number_telling(entries[1], beside[0]) > SETTLED:
        tried, left_out = _tried(spec, entries, source, beside, len(entries[1]))
    # wider columns may come after what they were better than by chance
    ways = [(one, max((other.score for other in tried if other.score < one.score), default=LEAST)) for one in tried]
    # what a trial found may be missed from the same start
    if _may_need_tries(spec, entries) and not tried[0].way.in_batches and not tried[0].way.tries:
        ways.insert(1, (tried[0]._replace(way=tried[0].way._replace(prior="learned", tries=True)), ways[0][1]))
    for one, other in ways:
        plan = _plan(spec, entries, source, beside, one.way)
        run = _run(spec, plan, one.way)
        if run.stopped:
            break
        # a fit that is worse at what it was given than a trial was unseen, this one's or the next, has gone astray
        found = weighted_mean(_predicted(spec, plan, run, left_out).score, left_out[3])
        least = one.score - THRESHOLDS.least_difference
        if found >= other and (found >= least or one.way.tries or one.way.in_batches):
            break
    return one, plan, run


def _run(spec: FitSpec, plan: Plan, way: Way) -> Run:
    """The run of a plan, in this way."""
    if not way.in_batches:
        return plan.policy.run(plan)
    return run_in_batches(plan, may_be_bold(settings_for(spec.method, plan.engine.method.name)))


def _plan(spec: FitSpec, entries: Entries, source: Any, beside: Beside, way: Way | None = None) -> Plan:
    """The plan of a joint fit of a stream's entries, with how much they count and their extents; as the spec says.

    A `way` tells what that leaves open.

    Raises
    ------
    ValueError, TypeError
        If a parameter, a value or a weight is not allowed.
    """
    power, extent = beside
    how: dict[str, Any] = {"streaming": True, "extent": extent, "power": power}
    if way is None:
        plan = plan_fit(spec, entries, source, **how)
    else:
        plan = plan_fit(_as(spec, way, entries), entries, source, prior=way.prior, **how)
    plan = plan if way is not None and way.tries else _without_tries(plan)
    if spec.revisit and extent is not None:
        fail_value(PLAIN_REVISITED)
    if spec.revisit and power is not None:
        fail_value(WHOLE_REVISITED)
    return plan


def _without_tries(plan: Plan) -> Plan:
    """The plan without many quick starts: all entries that are kept are fitted anew a few times on the way."""
    quick = tuple(one._replace(problem=one.problem._replace(tries=False)) for one in plan.policy.quick_fits)
    return plan.with_problem(tries=False).with_policy(quick_fits=quick)


def _begun(standing: Standing, plan: Plan, values: np.ndarray, beside: Beside) -> Standing:
    """The standing of a stream, with the values of its first batch."""
    weight, extent = beside
    return standing if standing.seen else standing.after(plan.problem.likelihood, values, None, extent, weight)


def enough(shape: Sequence[int], rank: int) -> int:
    """Entries after which a stream keeps no more."""
    return min(MOST_KEPT, PER_ELEMENT * rank * sum(shape))


def kept_with(
    spec: FitSpec,
    kept: Kept | None,
    batch: tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None],
) -> Kept | None:
    """The entries that are kept and those of a batch (coords, values, powers, extents); None where none are kept."""
    if kept is None or not keeps_entries(spec, len(kept.values) + len(batch[1])):
        return None
    return _with_batch(kept, batch)


def _with_batch(kept: Kept, batch: tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]) -> Kept:
    """Entries and those of a batch."""
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
    fitted = _number_telling(kept.values[: kept.fitted], None if kept.power is None else kept.power[: kept.fitted])
    wanted, end = GROWTH * fitted, enough(shape, rank)
    return _number_telling(kept.values, kept.power) >= (end if wanted * NEAR_END > end else wanted)


def _watched_to(shape: Sequence[int], rank: int) -> int:
    """Entries after which those of a stream with a named prior are watched no more."""
    return min(SETTLED, enough(shape, rank))


def watched_with(
    watched: Kept, batch: tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None], score: np.ndarray
) -> Kept:
    """The entries that are watched and those of a batch (coords, values, powers, extents), and its log scores."""
    scores = np.append([] if watched.score is None else watched.score, np.fmax(score, LEAST_SCORE))
    return _with_batch(watched, batch)._replace(score=scores)


def compared(
    spec: FitSpec, watched: Kept, state: StreamState, labels: Any, source: Any, standing: Standing
) -> tuple[Kept | None, Standing]:
    """What is watched on, and the standing, after a comparison with a fit if one is due.

    The fit is given the earlier half of the entries, and predicts the later half. When the stream predicted these it
    had learned that half and more: it is far behind if it gains less than half of what the fit does, beyond chance.
    """
    coords, values, score = watched.coords, watched.values, watched.score
    n, end = len(values), _watched_to(state.sizes, state.rank)
    if spec.forget or score is None:  # what it is to forget, a fit would not
        return None, standing
    if n < min(end, max(WARNED, int(GROWTH) * watched.fitted)):
        return watched, standing
    first, rest = slice(n // 2), slice(n // 2, n)
    (weight, known), (power, extent) = (
        tuple(None if part is None else part[half] for part in (watched.power, watched.extent))
        for half in (first, rest)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is no fit that somebody asked for
        plan = _plan(spec, (coords[first], values[first], state.sizes, labels), source, (weight, known))
        plan = plan.unseen()
        run = plan.policy.run(plan)
        fitted = _predicted(spec, plan, run, (coords[rest], values[rest], extent, None)).score
    likelihood = plan.problem.likelihood
    before = Standing().after(likelihood, values[first], None, known, weight)
    constant = before.constant(likelihood, values[rest], extent)
    own, other = (np.clip(said - constant, -MOST, MOST)[telling(power)] for said in (score[rest], fitted))
    behind = beyond_chance(other) and beyond_chance(0.5 * other - own)
    left = watched._replace(fitted=n) if n < end else None
    return left, standing._replace(lag=float(np.mean(other - own)) if behind else 0.0)


def _number_telling(values: np.ndarray, power: np.ndarray | None) -> int:
    """How many entries tell, of these powers."""
    return len(values[telling(power)])


class _Tried(NamedTuple):
    """A way, how the stream stands with the entries that were left out, and their log scores and weights (n,)."""

    way: Way
    standing: Standing
    scores: np.ndarray
    weight: np.ndarray | None

    @property
    def score(self) -> float:
        return weighted_mean(self.scores, self.weight)


# Coordinates, values, extents and weights of entries.
_LeftOut = tuple[np.ndarray, np.ndarray, np.ndarray | None, np.ndarray | None]


def _tried(spec: FitSpec, entries: Entries, source: Any, beside: Beside, most: int) -> tuple[list[_Tried], _LeftOut]:
    """The ways to learn, that which predicts entries best that were left out first; of so many entries at most.

    Which entries these are follows from what all of them are, not from their order.
    """
    coords, values, shape, labels = entries
    order = np.lexsort((values, *coords.T))
    told = np.isin(order, np.arange(len(order))[telling(beside[0])])  # the others say nothing of what is predicted
    light, order = order[~told], order[told]
    order = np.random.default_rng(len(order)).permutation(order)[:most]
    held, used = np.split(order, [int(len(order) * THRESHOLDS.share_of(len(order)))])
    n_used, used = len(used), np.append(used, light)
    some = (coords[used], values[used], shape, labels)
    apart = tuple(None if part is None else part[used] for part in beside)
    weight, extent = (None if part is None else part[held] for part in beside)
    left_out: _LeftOut = (coords[held], values[held], extent, weight)

    def trial(way: Way) -> _Tried:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what there is to say, the fit to all entries says
            plan = _plan(spec, some, source, apart, way)
            run = _run(spec, plan.unseen(), way)
            predicted = _predicted(spec, plan, run, left_out)
        likelihood = plan.problem.likelihood
        standing = Standing().after(likelihood, values[used], None, apart[1], apart[0])
        standing = standing.after(likelihood, values[held], predicted, extent, weight)
        return _Tried(way, standing, predicted.score, weight)

    found = [trial(way) for way in _ways(spec, n_used)]
    nothing = all(one.standing.gain < THRESHOLDS.least_explained * one.standing.n for one in found)
    if nothing and _may_need_tries(spec, entries):
        found.append(trial(Way("learned", tries=True)))
    found.sort(key=lambda one: -one.score)
    if len(found) > 1 and found[0].way.wide and not falls_short(found[1].scores, found[0].scores):
        found[:2] = found[1::-1]
    return found, left_out


def _may_need_tries(spec: FitSpec, entries: Entries) -> bool:
    """Whether many quick starts may find what one does not: products of more than three modes.

    Of three, no stream was found that gained by them; of labels there are none.
    """
    return len(entries[2]) > 3 and spec.asked.observes not in ("labels", "levels")


def _ways(spec: FitSpec, n: int) -> list[Way]:
    """The ways to learn n entries."""
    wide = [Way("learned", wide=True)] if leaves_columns(spec) else []
    if not chooses_prior(spec):
        return [Way("learned"), *wide]
    # entries that are revisited need the messages of one fit
    if spec.asked.observes not in ("labels", "counts") or spec.revisit or n <= BATCH:
        return [*map(Way, PRIORS), *wide]
    return [Way("learned"), Way("fixed", in_batches=True), *wide]


def _as(spec: FitSpec, way: Way, entries: Entries) -> FitSpec:
    """The parameters to learn entries in this way."""
    if way.in_batches:
        spec = spec._replace(target=spec.target.for_batches())
    if way.wide:
        spec = spec._replace(interactions=wide_columns(spec, len(entries[1]), entries[2]))
    return spec


def _predicted(spec: FitSpec, plan: Plan, run: Run, left_out: _LeftOut) -> Predicted:
    """Predictions of entries, with least log scores where a fit goes astray."""
    (coords, values, extent, _), posterior = left_out, run.posterior
    least, likelihood = np.full(len(values), LEAST), plan.problem.likelihood
    if not (np.isfinite(posterior.Lam).all() and np.isfinite(posterior.eta).all()):
        return Predicted(np.full(len(values), LEAST), least)
    belief, rows = posterior.components(), coords + offsets(posterior.shape)[:-1]
    score = observed_logpdf(likelihood, belief, rows, spec.target.checked(values, likelihood), extent=extent)
    mean = observed_moments(likelihood, belief, rows, extent=extent)[0]
    return Predicted(mean, np.where(np.isfinite(score), score, least))
