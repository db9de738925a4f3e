"""What "auto" stands for in a `FitSpec`: method, rank, prior, interactions, sweeps.

The rules look at the numbers of entries, rows and modes alone; `scripts/benchmarks/quality/defaults.py` studies their
constants on held-out training entries. Entries left out may then decide on other columns (`tensorcep.cp.fit.select`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.core.settings import Settings
from tensorcep.cp.inputs.side_information import coupled
from tensorcep.cp.methods import METHODS, is_able, methods_with, proposes_rows, quick_method, refuse_unable
from tensorcep.cp.model.columns import parts_of
from tensorcep.cp.plan.memory import fits, within
from tensorcep.cp.plan.spec import FitSpec, checked_prior_kind, given_int, is_auto, is_random
from tensorcep.cp.settings import CEP, SETTINGS, Gibbs, Sampler, checked_method, size_of
from tensorcep.cp.targets.base import Chosen
from tensorcep.likelihoods.base import Likelihood
from tensorcep.priors.fixed import Prior

# One component for each entry that a row has on average, within these bounds; no more than the second largest mode has
# rows.
RANKS = (3, 20)
# Columns of each pair of modes: in all about as many per mode as the CP component has, at most these; no more than the
# smallest mode has rows.
MOST_PAIRS = 8
# Sweeps of every chain: so many visits of entries, within these bounds. Values nearly without noise lose by fewer.
VISITS, SAMPLER_SWEEPS, LABEL_SWEEPS, PROPOSING_SWEEPS = 8e6, (150, 1000), (150, 600), (100, 400)
# Of so many entries a sampler has so many chains: quick fits find what others would.
MANY_ENTRIES, CHAINS_OF_MANY = 500_000, 2
SWEEPS = 200
# A stream has this rank, for it begins before it is known how many entries there will be.
STREAM_RANK = 8
# Fits of CEP that are mixed: as many as together visit so many entries in a sweep, within these bounds.
MIXED_ENTRIES, MEMBERS = 80_000, (1, 4)
# Counts: so many get four chains, and so many two; mean field fits more of them as well as CEP in a tenth of the time.
FEW_COUNTS, SOME_COUNTS = 20_000, 100_000


class Default(NamedTuple):
    """What "auto" stands for in fits of a likelihood."""

    # the sampler that there is for it ("pg-gibbs" of negative-binomial counts mixes too slowly to be one), or else mean
    # field where that is as good as CEP
    method: str = "cep"
    sampled_if_few: bool = False  # whether few entries have chains of "gibbs" first
    parts: str = "main+cp"  # columns that CEP takes first, of tensors; "pairs" are main effects and pairs of modes
    # of messages, mode by mode. Undamped updates converge for the Gaussian, whose messages are positive definite; other
    # likelihoods, and the parallel schedule (`PARALLEL_DAMPING`), need damping. Censored values far below their limit
    # say little, and then updates overshoot.
    damping: float | str = 0.5
    # annealed sweeps. Damped updates of labels and counts take longer to align the factors than undamped ones of real
    # values; a prior that is learned finds its scale afterwards, and needs less.
    anneal: int = 40
    anneal_learned: int = 15


DEFAULTS = {
    "gaussian": Default("gibbs", parts="cp", damping=0.0, anneal=15, anneal_learned=5),
    "tobit": Default("gibbs", parts="cp", damping="adaptive", anneal=15),
    "probit": Default("gibbs", parts="pairs"),
    "logit": Default("pg-gibbs", parts="pairs"),
    "binomial": Default("pg-gibbs"),
    "poisson": Default("vmp", sampled_if_few=True),
    "negbinomial": Default("vmp", sampled_if_few=True),
    "ordinal_probit": Default("gibbs"),
}
OTHERWISE, PARALLEL_DAMPING = Default(), 0.5


def choose(
    spec: FitSpec,
    n_entries: int,
    shape: Sequence[int],
    streaming: bool,  # whether these are the first ones of a stream
    stream_prior: str = "fixed",  # what prior="auto" stands for there
    limit: float | None = None,  # the bytes that the fit may take
    stored: bool = False,  # whether the entries lie on scratch
    wild: bool = False,  # whether one alone could decide the fit
) -> Chosen:
    """What a fit to so many entries is to be."""
    usual = stream_rank(spec, n_entries, shape) if streaming else rank_for(n_entries, shape)
    rank, asked = given_int("rank", spec.rank, usual), spec.asked
    options = list(options_of(spec, asked, rank, streaming, n_entries, wild))
    storable = [one for one in options if not stored or is_able(one[0], "stores", asked)]
    for option in storable or options:
        chosen = chosen_with(spec, n_entries, shape, stream_prior if streaming else None, *option)
        if fits(chosen.settings, within(size_of(n_entries, shape, chosen.parts), limit, stored)):
            break
    return chosen


def chosen_with(
    spec: FitSpec, n_entries: int, shape: Sequence[int], stream_prior: str | None, settings: Settings, rank: int
) -> Chosen:
    """What the fit is to be with this method and rank; of a stream if `stream_prior` is given."""
    streaming = stream_prior is not None
    likelihood, prior = spec.asked, checked_prior_kind(spec.prior)
    given = None if is_auto(spec.interactions) else parts_of(spec.interactions, rank)
    name, can = settings.name, METHODS[settings.name].capabilities
    if given is None:
        if streaming or not leaves_columns(spec):
            given = parts_of("cp", rank)
        elif takes_every_column(name):
            given = every_column(rank, shape)
        else:  # of a matrix the only pair of modes is the CP component
            of_cep = name == CEP.name and len(shape) > 2
            parts = DEFAULTS.get(likelihood.name, OTHERWISE).parts if of_cep else "main+cp"
            of_pairs = {"main": 1, "pair": min(MOST_PAIRS, rank, max(1, min(shape))), "cp": 0}
            given = of_pairs if parts == "pairs" else parts_of(parts, rank)
    left_open = isinstance(spec.prior, str) and is_auto(prior)
    if is_auto(prior):
        prior = (stream_prior if left_open else None) or ("learned" if can.learns_prior else "fixed")
    usual = sampler_sweeps(n_entries, name, likelihood) if can.sampler else SWEEPS
    sweeps = given_int("max_iter", spec.max_iter, usual)
    members = 1 if streaming else settings.get_params().get("n_ensemble", 1)
    if is_auto(members):
        several = prior == "learned" and is_random(spec.init)
        members = int(np.clip(round(MIXED_ENTRIES / max(1, n_entries)), *MEMBERS)) if several else 1
    elif members > 1 and not is_random(spec.init):
        fail_value(f"n_ensemble must be 1 without init='auto' or 'random', since all fits would be one; got {members}.")
    uniform, from_least = isinstance(spec.prior_mean, str), streaming and left_open
    return Chosen(name, settings, rank, prior, given, sweeps, int(members), uniform, from_least, is_random(spec.init))


def check_storable(method: str | Settings, uneven: Any, likelihoods: Sequence[Likelihood]) -> None:
    """Refuse fits, by any method if it is "auto", that scratch holds too little of whichever likelihood it is."""
    known = [one for one in likelihoods if methods_with("stores", likelihood=one)]
    what = "" if known else f"the likelihood {likelihoods[0].name!r}"
    if all(one.zeros is not None for one in likelihoods):
        what = "structural zeros"
    if uneven is not None and not what:
        differs = "noise" if any(one.observes == "values" for one in likelihoods) else "a dispersion"
        what = f"{differs} that differs"
    if what:
        fail_value(
            f"scratch= is for one noise or dispersion, no structural zeros and no numbers of trials; got {what}; leave "
            "scratch= out."
        )
    if method != "auto" and not any(is_able(method, "stores", one) for one in known):
        cannot = f"cannot take {known[0].name!r} entries from scratch"
        refuse_unable(method, "stores", cannot, known[0], instead="memory alone (no scratch=)")


def stream_rank(spec: FitSpec, n_entries: int, shape: Sequence[int]) -> int:
    """Columns of the CP component of a stream that begins with so many entries."""
    # where rows follow from each other a batch tells more of them than its entries alone
    return STREAM_RANK if coupled(spec.prior) is None else max(STREAM_RANK, rank_for(n_entries, shape))


def leaves_columns(spec: FitSpec) -> bool:
    """Whether a spec leaves it open which parts there are beside the components."""
    # a prior or an init that is given is one of the components' columns alone
    return is_auto(spec.interactions) and not isinstance(spec.prior, Prior) and is_random(spec.init)


def rank_for(n_entries: int, shape: Sequence[int]) -> int:
    """Columns of the CP component."""
    return int(min(np.clip(n_entries // max(1, sum(shape)), *RANKS), max(1, sorted(shape)[-2])))


def takes_every_column(method: str) -> bool:
    """Whether a method has columns of every part by default: it is not harmed by more of them than the data need."""
    return METHODS[method].capabilities.sampler or METHODS[method].capabilities.point_estimate


def every_column(rank: int, shape: Sequence[int]) -> dict[str, int]:
    """Columns of each part for a method that has all of them by default."""
    pairs = min(MOST_PAIRS, -(-rank // (len(shape) - 1)), max(1, min(shape))) if len(shape) > 2 else 0
    return {"main": 1, "pair": pairs, "cp": rank}


def sampler_sweeps(n_entries: int, name: str, likelihood: Likelihood) -> int:
    """Sweeps of every chain; fewer where rows are proposed, which move further than given a variable of each entry."""
    usual = LABEL_SWEEPS if likelihood.observes == "labels" else SAMPLER_SWEEPS
    return int(np.clip(VISITS / max(1, n_entries), *(PROPOSING_SWEEPS if proposes_rows(name, likelihood) else usual)))


def options_of(
    spec: FitSpec, asked: Likelihood, rank: int, streaming: bool, n: int, wild: bool
) -> Iterator[tuple[Settings, int]]:
    """Settings and rank of a fit, best first: if "auto" with fewer columns, then by a method of less memory."""
    # a sampler gives way to mean field, and stored messages to float32; both, in the end, to CEP that stores none
    name, settings = checked_method(spec.method)
    fewer = range(rank, min(rank, RANKS[0]) - 1, -1) if is_auto(spec.rank) and not streaming else range(rank, rank + 1)
    if name != "auto" or streaming or spec.revisit:
        given = settings or SETTINGS[name if name != "auto" else CEP.name]()
        yield from ((given, r) for r in fewer)
        return
    default, quick = DEFAULTS.get(asked.name, OTHERWISE), quick_method(asked)
    first, can = SETTINGS[default.method], METHODS[default.method].capabilities
    by_mode = isinstance(spec.target.dispersion, str) and spec.target.dispersion != "learned"
    plain = not wild and asked.zeros is None and coupled(spec.prior) is None and not by_mode
    if default.sampled_if_few and n <= SOME_COUNTS and plain:
        chains = Gibbs() if n <= FEW_COUNTS else Gibbs(n_chains=CHAINS_OF_MANY)
        yield from ((chains, r) for r in fewer)
    if first is CEP:
        yield from ((own, rank) for own in (CEP(), CEP(dtype="float32")))
    else:
        own = first().set_params(n_chains=CHAINS_OF_MANY) if can.sampler and n >= MANY_ENTRIES else first()
        yield from ((own, r) for r in fewer)
        if quick is not None:
            yield from ((SETTINGS[quick.name](), r) for r in fewer)
    even = spec.target.noise == "one"  # otherwise CEP would refuse it
    if not asked.censored and asked.zeros is None and even:
        yield from ((CEP(messages="averaged"), r) for r in fewer)


def with_numbers(
    settings: Settings, likelihood: str, learned: bool, max_iter: int, most_draws: float = np.inf
) -> Settings:
    """The settings with numbers for "auto"; `learned`: prior="learned"; `most_draws`: for which there is room."""
    if isinstance(settings, Sampler):
        return settings.for_sweeps(max_iter, most_draws)
    values, numbers, default = settings.get_params(), {}, DEFAULTS.get(likelihood, OTHERWISE)
    if values.get("damping") == "auto":
        numbers["damping"] = default.damping if values["schedule"] == "modewise" else PARALLEL_DAMPING
    if "anneal" in values:
        usual = default.anneal_learned if learned else default.anneal
        numbers["anneal"] = min(usual if values["anneal"] == "auto" else values["anneal"], max_iter // 2)
    return replace(settings, **numbers)
