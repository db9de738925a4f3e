"""The settings of every engine by the name of its method."""

from __future__ import annotations

from typing import Any

from tensorcep.core.checks import check_choice
from tensorcep.core.settings import Engines, Settings
from tensorcep.cp.settings.meanfield import PGVB, VMP
from tensorcep.cp.settings.messages import CEP, Laplace
from tensorcep.cp.settings.sampling import Gibbs, PGGibbs
from tensorcep.cp.settings.wopt import WOPT

SETTINGS: dict[str, type[Settings]] = {cls.name: cls for cls in (CEP, Laplace, VMP, WOPT, Gibbs, PGVB, PGGibbs)}
ENGINES: Engines[Settings] = Engines(
    {name: record() for name, record in SETTINGS.items()},
    otherwise="cep",
    moved=("schedule", "moments", "order", "damping", "anneal", "n_init", "n_ensemble", "dtype", "method_options"),
    renamed={"n_init": "n_starts"},
)


def checked_method(method: Any) -> tuple[str, Settings | None]:
    """The name of a method, or "auto", and the settings that were given with it; see `Engines.settings_of`."""
    if isinstance(method, (Settings, type)):
        settings = ENGINES.settings_of(method)
        return settings.name, settings
    return check_choice("method", method, ("auto", *SETTINGS)), None


def settings_for(method: Any, name: str) -> Settings:
    """The settings of the method of this name: those that were given with `method`, if it is that, or its own."""
    given = checked_method(method)[1]
    return given if given is not None and given.name == name else SETTINGS[name]()
