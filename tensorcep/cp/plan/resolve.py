"""From a spec and entries to the draft of a fit: every choice by rule and every refusal, before anything is run."""

from __future__ import annotations

from copy import copy
from typing import Any, NamedTuple

import numpy as np

from tensorcep.core.arrays import room_of
from tensorcep.core.checks import fail_value
from tensorcep.core.loop import AnyMethod
from tensorcep.core.settings import Settings
from tensorcep.cp.inputs import side_information
from tensorcep.cp.methods import get_method
from tensorcep.cp.model.columns import free_columns
from tensorcep.cp.model.entries import Entries, in_lanes, pack_entries
from tensorcep.cp.model.memmap import StoredColumns, pack_stored, pieces
from tensorcep.cp.model.problem import Problem, Uneven
from tensorcep.cp.model.subsets import plain_values, telling, with_extents
from tensorcep.cp.plan.auto import check_storable, choose, with_numbers
from tensorcep.cp.plan.memory import check_memory, fits, room_for_draws, within
from tensorcep.cp.plan.priors import Data, ExpectedRows, plan_rows
from tensorcep.cp.plan.spec import FitSpec, RunOptions, check_revisit, checked_options, is_random
from tensorcep.cp.settings import Size, size_of
from tensorcep.cp.targets.base import Chosen
from tensorcep.likelihoods.base import Likelihood

# Products of two numbers in the sums over the entries of one mode: some milliseconds, longer than threads take.
WORTH_THREADS = 4e6


class Draft(NamedTuple):
    """A fit that is decided but for what only fits to some of the entries can tell (`tensorcep.cp.fit.select`)."""

    spec: FitSpec
    chosen: Chosen
    data: Data  # as it is until noise or a power is chosen
    given: tuple[Any, ...]  # coordinates, values and weights as they were given
    labels: tuple[Any, ...]
    method: AnyMethod
    settings: Settings
    options: RunOptions
    facts: dict[str, Any]  # what is decided of the values and known of rows, by its names in files
    local: side_information.Local | None  # of rows that deviate
    n_told: int  # entries that tell
    size: Size
    limit: float | None  # the bytes that the fit may take
    stored: bool  # whether entries lie on scratch
    n_starts: int  # of all members together
    spectral: bool  # whether starts come from spectra
    has_quick_fits: bool  # whether these go first
    streaming: bool  # whether these are the first entries of a stream

    def fits(self, chosen: Chosen) -> bool:
        """Whether there is memory for a fit in these columns."""
        n, shape = len(self.data.values), self.data.shape
        return fits(self.settings, within(size_of(n, shape, chosen.parts), self.limit, self.stored))


def resolve(
    spec: FitSpec,
    entries: tuple[np.ndarray, np.ndarray, tuple[int, ...], tuple[Any, ...]],
    source: Any,  # what the user passed, which may know more than the entries
    streaming: bool = False,
    prior: str = "fixed",  # what prior="auto" stands for in a stream
    decided: tuple[Likelihood, dict[str, Any]] | None = None,  # by an earlier fit, with the facts that tell of it
    limit: float | None = None,  # the bytes that the fit may take
    extent: np.ndarray | None = None,  # (N,), exposures of mean 1, or numbers of trials
    power: np.ndarray | None = None,  # (N,), how much each entry counts
) -> Draft:
    """Decide a fit by rule, and refuse what is not allowed, before anything is run."""
    coords, values, shape, labels = entries
    if spec.revisit:
        check_revisit(spec)
    stored, told_values = isinstance(coords, StoredColumns), values[telling(power)]
    chosen = choose(spec, len(told_values), shape, streaming, prior, limit, stored, spec.target.is_wild(told_values))
    likelihood, own = decided or spec.target.decide(values, chosen, coords, extent, power)
    method = get_method(chosen.method, likelihood, chosen.learns_prior, side_information.knows_rows(spec.prior))
    columns = coords.columns if isinstance(coords, StoredColumns) else list(coords.T)
    shape, labels, designs, clocks = side_information.described(spec.prior, shape, labels, columns)
    local = side_information.local_of(spec.prior, labels, clocks)
    side_information.check_known(designs, clocks, local is not None, chosen.settings, likelihood)
    uneven, told = spec.target.decide_noise(labels, chosen, streaming, spec.prior)
    own = own | told | spec.target.of_source(source)
    options, size = checked_options(spec), size_of(len(values), shape, chosen.parts)
    if local is not None:
        if stored:
            fail_value("scratch= is for fits without a Series that has local=; leave one of them out.")
        size = size._replace(shape=(*size.shape, side_information.check_pairs(local, coords, labels)), R=size.R + 1)
    size = within(size, limit, stored)
    most, learned = room_for_draws(chosen.settings, size), chosen.prior_name == "learned"
    settings = with_numbers(chosen.settings, likelihood.name, learned, chosen.max_iter, most)
    spectral = isinstance(spec.init, str) and spec.init == "auto"
    has_quick_fits = (
        chosen.learns_prior and not side_information.are_many(designs) and not side_information.are_large(clocks)
    )
    spectral = spectral and not chosen.has_positive_rows and chosen.prior_name != "given"
    alone = spectral and has_quick_fits and chosen.members == 1 and settings.get_params().get("messages") == "full"
    check_memory(copy(settings).set_params(n_starts=1) if alone else settings, size, chosen.max_iter)
    given, how = (coords, values, shape, labels), (chosen.settings, uneven)
    packed, ordered, weight = packed_entries(spec, given, likelihood, how, extent, power)
    several = method.trial_sweeps(settings) > 0 and is_random(spec.init)
    n_starts = chosen.members * (settings.get_params().get("n_starts", 1) if several else 1)
    return Draft(
        spec=spec,
        chosen=chosen,
        data=Data(packed, ordered, shape, likelihood, designs, clocks, uneven, weight),
        given=(coords, values, power),
        labels=labels,
        method=method,
        settings=settings,
        options=options._replace(n_threads=options.n_threads if size.n_entries * size.Q**2 >= WORTH_THREADS else 1),
        facts={"_features": designs, "_series": clocks, **own},
        local=local,
        n_told=len(told_values),
        size=size,
        limit=limit,
        stored=stored,
        n_starts=n_starts,
        spectral=spectral,
        has_quick_fits=has_quick_fits,
        streaming=streaming,
    )


def packed_entries(
    spec: FitSpec,
    entries: tuple[Any, np.ndarray, tuple[int, ...], Any],
    likelihood: Likelihood,
    how: tuple[Settings, Uneven | None],
    extent: np.ndarray | None,
    weight: np.ndarray | None,
) -> tuple[Entries, np.ndarray, np.ndarray | None]:
    """The entries in their order, their values and weights: sums over them do not depend on the order of the input."""
    coords, values, shape, _ = entries
    if isinstance(coords, StoredColumns):
        check_storable(*how, [likelihood])
        checked = room_of(values).empty(len(values))
        for at in pieces(len(values)):
            checked[at] = spec.target.checked(values[at], likelihood)
        packed = pack_stored(coords, checked, shape)
        return packed, packed.y.ravel()[: len(values)], None
    values = spec.target.checked(values, likelihood)
    packed = with_extents(pack_entries(coords, values, shape), likelihood, extent)
    order = packed.permutation
    plain = plain_values(values, likelihood, extent, weight)[order]
    return packed, plain, None if weight is None else weight[order]


def problem_of(
    spec: FitSpec, data: Data, chosen: Chosen, n_starts: int, seed: Any = None
) -> tuple[Problem, ExpectedRows]:
    """The problem in the columns that are chosen, with what is expected of its rows."""
    free = free_columns(chosen.parts, len(data.shape))
    rows = plan_rows(spec, data, chosen.prior, free, n_starts, spec.random_state if seed is None else seed)
    problem = Problem(
        entries=data.entries,
        shape=data.shape,
        rank=free.shape[1],
        likelihood=data.likelihood,
        prior=rows.prior,
        start=rows.starts[0],
        noise_prior=spec.target.gamma_noise(data.values, data.weight),
        seed=rows.seed,
        free=None if free.all() else free,
        uneven=data.uneven,
        power=None if data.weight is None else in_lanes(data.entries, data.weight),
    )
    return problem, rows
