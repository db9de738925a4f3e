"""What "auto" stands for in a `FitSpec`: method, rank, prior, interactions, sweeps.

The rules look at the numbers of entries, rows and modes alone; `scripts/studies/choose_defaults.py` studies their
constants on held-out training entries. Entries left out may then decide on other columns (`tensorcep.cp.fit.select`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tensorcep.core.checks import fail_value
from tensorcep.core.settings import Settings
from tensorcep.cp.inputs.side_information import coupled
from tensorcep.cp.methods import METHODS, proposes_rows
from tensorcep.cp.model.columns import parts_of
from tensorcep.cp.plan.memory import fits, within
from tensorcep.cp.plan.plan import PILOTS
from tensorcep.cp.plan.spec import (
    FitSpec,
    checked_ensemble,
    checked_prior_kind,
    given_int,
    is_auto,
    is_random,
)
from tensorcep.cp.settings.base import size_of
from tensorcep.cp.settings.messages import CEP
from tensorcep.cp.settings.registry import SETTINGS, checked_method
from tensorcep.cp.targets.base import Chosen
from tensorcep.likelihoods.record import Likelihood
from tensorcep.priors.fixed import Prior

# One component for each entry that a row has on average, within these bounds; no more than the second largest mode has
# rows.
RANKS = (3, 20)
# Columns of each pair of modes: in all about as many per mode as the CP component has, at most these; no more than the
# smallest mode has rows.
MOST_PAIRS = 8
# Sweeps of every chain: so many visits of entries, within these bounds. Values nearly without noise lose by fewer.
VISITS, SAMPLER_SWEEPS, LABEL_SWEEPS, PROPOSING_SWEEPS = 8e6, (150, 1000), (150, 600), (100, 400)
# Of so many entries a sampler has so many chains: pilots find what others would.
MANY_ENTRIES, CHAINS_OF_MANY = 500_000, 2
SWEEPS = 200
# A stream has this rank, for it begins before it is known how many entries there will be.
STREAM_RANK = 8
# Methods for entries on scratch, of these likelihoods.
STORABLE = {
    "gaussian": ("gibbs", "vmp", "cep"),
    "tobit": ("gibbs", "vmp"),
    "probit": ("gibbs", "vmp", "cep"),
    "logit": ("pg-gibbs", "pg-vb", "cep"),
    "poisson": ("vmp", "cep"),
    "negbinomial": ("pg-vb", "vmp", "cep"),
    "ordinal_probit": ("gibbs", "vmp", "cep"),
    "ordinal_logit": ("cep",),
}
# Fits of CEP that are mixed: as many as together visit so many entries in a sweep, within these bounds.
MIXED_ENTRIES, MEMBERS = 80_000, (1, 4)
# The sampler of a likelihood; "pg-gibbs" of negative-binomial counts mixes too slowly to be one.
SAMPLERS = {
    "gaussian": "gibbs",
    "tobit": "gibbs",
    "probit": "gibbs",
    "logit": "pg-gibbs",
    "binomial": "pg-gibbs",
    "ordinal_probit": "gibbs",
}
# Counts: so many get four chains, and so many two; mean field fits more of them as well as CEP in a tenth of the time.
FEW_COUNTS, SOME_COUNTS, OTHERWISE = 20_000, 100_000, {"poisson": "vmp", "negbinomial": "vmp"}
# Likelihoods whose first choice for CEP is the CP component, and main effects and pairs.
OF_CP_ALONE, OF_PAIRS = ("gaussian", "tobit"), ("probit", "logit")
# A method, its settings if they are not the default, and the rank.
Option = tuple[str, Settings | None, int]


def choose(
    spec: FitSpec,
    n_entries: int,
    shape: Sequence[int],
    streaming: bool,
    stream_prior: str = "fixed",
    limit: float | None = None,
    stored: bool = False,
    wild: bool = False,
) -> Chosen:
    """What a fit to so many entries is to be; `streaming`: to the first ones of a stream.

    `stream_prior` is what prior="auto" stands for in a stream, `limit` the bytes that the fit may take; `stored` says
    that the entries lie on scratch, `wild` that one alone could decide the fit. Raises ValueError or TypeError for what
    is neither "auto" nor allowed.
    """
    rank = given_int(
        "rank", spec.rank, stream_rank(spec, n_entries, shape) if streaming else rank_for(n_entries, shape)
    )
    asked = spec.asked
    options = list(options_of(spec, asked, rank, streaming, n_entries, wild))
    for option in [one for one in options if not stored or is_storable(*one[:2], asked)] or options:
        chosen = chosen_with(spec, n_entries, shape, stream_prior if streaming else None, *option)
        if fits(chosen.settings, within(size_of(n_entries, shape, chosen.parts), limit, stored)):
            break
    return chosen


def chosen_with(
    spec: FitSpec,
    n_entries: int,
    shape: Sequence[int],
    stream_prior: str | None,
    name: str,
    settings: Settings | None,
    rank: int,
) -> Chosen:
    """What the fit is to be with this method and rank; of a stream if `stream_prior` is given."""
    streaming = stream_prior is not None
    likelihood, prior = spec.asked, checked_prior_kind(spec.prior)
    given = None if is_auto(spec.interactions) else parts_of(spec.interactions, rank)
    method = METHODS[name]
    if given is None:
        given = parts_of("cp", rank) if streaming or _needs_cp(spec) else columns_for(name, likelihood, rank, shape)
    left_open = isinstance(spec.prior, str) and is_auto(prior)
    if is_auto(prior):
        prior = (stream_prior if left_open else None) or ("learned" if method.learns_prior else "fixed")
    settings = SETTINGS[name]() if settings is None else settings
    usual = sampler_sweeps(n_entries, name, likelihood) if method.sampler else SWEEPS
    sweeps = given_int("max_iter", spec.max_iter, usual)
    several = prior == "learned" and is_random(spec.init)
    members = 1 if streaming else members_for(settings, n_entries, several)
    uniform = isinstance(spec.prior_mean, str)
    members, from_least = checked_ensemble(members, spec.init), streaming and left_open
    return Chosen(name, settings, rank, prior, given, sweeps, members, uniform, from_least, is_random(spec.init))


def is_storable(method: str, settings: Settings | None, likelihood: Likelihood) -> bool:
    """Whether the method with these settings takes entries of this likelihood from scratch."""
    full = method == "cep" and (settings or CEP()).get_params()["messages"] == "full"
    return method in STORABLE.get(likelihood.name, ()) and not full


def check_storable(method: str, settings: Settings | None, uneven: Any, likelihoods: Sequence[Likelihood]) -> None:
    """Refuse fits, by any method if it is "auto", that need more of every entry than scratch holds.

    Raises
    ------
    ValueError
        If that is so whichever of the likelihoods it is.
    """
    known = [one for one in likelihoods if one.name in STORABLE]
    what = "" if known else f"the likelihood {likelihoods[0].name!r}"
    if known and method != "auto" and not any(is_storable(method, settings, one) for one in known):
        full = any(method in STORABLE[one.name] for one in known)
        what = "a message of every entry" if full else f"method={method!r} for {known[0].name!r}"
    if known and all(one.zeros is not None for one in known):
        what = what or "structural zeros"
    differs = "noise" if any(one.observes == "values" for one in likelihoods) else "a dispersion"
    what = what or (f"{differs} that differs" if uneven is not None else "")
    if what:
        methods = "; ".join(f"{name!r} by {' or '.join(own)}" for name, own in STORABLE.items())
        fail_value(
            f"scratch= is for one noise or dispersion, no structural zeros, and {methods}, where cep is "
            f"CEP(messages='averaged'); got {what}; use one of these, or leave scratch= out."
        )


def members_for(settings: Settings, n_entries: int, several: bool) -> int:
    """Fits that are mixed; `several`: whether "auto" may be more than one."""
    given = settings.get_params().get("n_ensemble", 1)
    if not is_auto(given):
        return int(given)
    return int(np.clip(round(MIXED_ENTRIES / max(1, n_entries)), *MEMBERS)) if several else 1


def stream_rank(spec: FitSpec, n_entries: int, shape: Sequence[int]) -> int:
    """Columns of the CP component of a stream that begins with so many entries."""
    # where rows follow from each other a batch tells more of them than its entries alone
    return STREAM_RANK if coupled(spec.prior) is None else max(STREAM_RANK, rank_for(n_entries, shape))


def leaves_columns(spec: FitSpec) -> bool:
    """Whether a spec leaves it open which parts a stream has beside the components."""
    return is_auto(spec.interactions) and not _needs_cp(spec)


def wide_columns(spec: FitSpec, n_entries: int, shape: Sequence[int]) -> dict[str, int]:
    """Columns of each part of a stream that begins with so many entries and has every part."""
    return every_column(given_int("rank", spec.rank, stream_rank(spec, n_entries, shape)), shape)


def _needs_cp(spec: FitSpec) -> bool:
    """Whether what was given fits the columns of the CP component alone."""
    return isinstance(spec.prior, Prior) or not is_random(spec.init)


def rank_for(n_entries: int, shape: Sequence[int]) -> int:
    """Columns of the CP component."""
    return int(min(np.clip(n_entries // max(1, sum(shape)), *RANKS), max(1, sorted(shape)[-2])))


def columns_for(method: str, likelihood: Likelihood, rank: int, shape: Sequence[int]) -> dict[str, int]:
    """Columns of each part for a method; of a matrix the only pair of modes is the CP component."""
    if METHODS[method].sampler or method == "wopt":
        return every_column(rank, shape)
    if method == "cep" and likelihood.name in OF_CP_ALONE and len(shape) > 2:
        return parts_of("cp", rank)
    if method == "cep" and likelihood.name in OF_PAIRS and len(shape) > 2:
        return {"main": 1, "pair": min(MOST_PAIRS, rank, max(1, min(shape))), "cp": 0}
    return parts_of("main+cp", rank)


def every_column(rank: int, shape: Sequence[int]) -> dict[str, int]:
    """Columns of each part for a method that is not harmed by more of them than the data need."""
    pairs = min(MOST_PAIRS, -(-rank // (len(shape) - 1)), max(1, min(shape))) if len(shape) > 2 else 0
    return {"main": 1, "pair": pairs, "cp": rank}


def sampler_sweeps(n_entries: int, name: str, likelihood: Likelihood) -> int:
    """Sweeps of every chain; fewer where rows are proposed, which move further than given a variable of each entry."""
    usual = LABEL_SWEEPS if likelihood.observes == "labels" else SAMPLER_SWEEPS
    return int(np.clip(VISITS / max(1, n_entries), *(PROPOSING_SWEEPS if proposes_rows(name, likelihood) else usual)))


def options_of(spec: FitSpec, asked: Likelihood, rank: int, streaming: bool, n: int, wild: bool) -> Iterator[Option]:
    """What a fit may be, best first: with fewer columns, then by a method that takes less memory, where "auto" lets it.

    A sampler gives way to mean field, and stored messages to float32; both, in the end, to CEP that stores none.
    """
    name, settings = checked_method(spec.method)
    fewer = range(rank, min(rank, RANKS[0]) - 1, -1) if is_auto(spec.rank) and not streaming else range(rank, rank + 1)
    if name != "auto" or streaming or spec.revisit:
        yield from ((name if name != "auto" else "cep", settings, r) for r in fewer)
        return
    name = SAMPLERS.get(asked.name, OTHERWISE.get(asked.name, "cep"))
    by_mode = isinstance(spec.target.dispersion, str) and spec.target.dispersion != "learned"
    plain = not wild and asked.zeros is None and coupled(spec.prior) is None and not by_mode
    if asked.name in OTHERWISE and n <= SOME_COUNTS and plain:
        own = None if n <= FEW_COUNTS else SETTINGS["gibbs"]().set_params(n_chains=CHAINS_OF_MANY)
        yield from (("gibbs", own, r) for r in fewer)
    if name == "cep":
        yield from ((name, own, rank) for own in (None, CEP(dtype="float32")))
    else:
        others = [other for other in PILOTS if not METHODS[other].lacks(asked)]
        many = METHODS[name].sampler and n >= MANY_ENTRIES
        yield from ((name, SETTINGS[name]().set_params(n_chains=CHAINS_OF_MANY) if many else None, r) for r in fewer)
        yield from ((one, None, r) for one in others[:1] for r in fewer)
    even = spec.target.noise == "one"  # otherwise CEP would refuse it
    if not asked.censored and asked.zeros is None and even:
        yield from (("cep", CEP(messages="averaged"), r) for r in fewer)
