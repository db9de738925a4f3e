"""Which pilots a fit has: quick ones in all of its columns and, for samplers by default, in some of them."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING

from tensorcep.core.loop import AnyMethod
from tensorcep.core.settings import Settings
from tensorcep.cp.columns import columns_within
from tensorcep.cp.estimators.defaults import Chosen
from tensorcep.cp.estimators.options import with_numbers
from tensorcep.cp.methods import METHODS
from tensorcep.cp.plan import PILOTS, REFIT_ANNEAL, Pilot
from tensorcep.cp.problem import Problem
from tensorcep.cp.settings.names import SETTINGS
from tensorcep.likelihoods.record import Likelihood

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP

# So many overdispersed counts have a pilot of all but pairs of modes, too: in noise that begins large these take what
# components would explain. A tenth of fewer can't tell, and of more the pilot of all columns finds what there is.
WITHOUT_PAIRS = 1000, 20_000


def pilots_of(
    model: BaseCP,
    chosen: Chosen,
    method: AnyMethod,
    entries: tuple[Likelihood, int, int],
    in_columns: Callable[[dict[str, int]], Problem],
) -> tuple[Pilot, ...]:
    """Quick fits of all columns; for samplers by default also of the CP component and of main effects alone.

    `entries` are their likelihood, how many there are, and of how many modes; `in_columns` gives the problem in columns
    of these parts.
    """
    likelihood, n_entries, order = entries
    name = next((name for name in PILOTS if not METHODS[name].lacks(likelihood)), None)
    if name is None:
        return ()
    settings = with_numbers(SETTINGS[name](), likelihood.name, True, chosen.max_iter)
    some = {"all columns": chosen.parts}
    stacked = chosen.settings.get_params().get("weights") == "stacked"  # else one start is all that they are for
    if method.sampler and stacked and isinstance(model.interactions, str) and model.interactions == "auto":
        some |= {"cp": chosen.parts | {"main": 0, "pair": 0}, "main": chosen.parts | {"pair": 0, "cp": 0}}
        few = WITHOUT_PAIRS[0] <= n_entries < WITHOUT_PAIRS[1]
        if few and likelihood.name == "negbinomial" and chosen.parts["pair"]:
            some |= {"main+cp": chosen.parts | {"pair": 0}}
    return tuple(
        Pilot(part, METHODS[name], settings, in_columns(parts), columns_within(parts, chosen.parts, order))
        for part, parts in some.items()
    )


def after_pilot(settings: Settings, chosen: Chosen) -> Settings:
    """Settings of a fit that starts where a pilot has ended, where the user has not said how long it is annealed."""
    if chosen.method not in PILOTS or chosen.settings.get_params()["anneal"] != "auto":
        return settings
    return copy(settings).set_params(anneal=min(REFIT_ANNEAL, settings.get_params()["anneal"]))
