"""The settings of every engine by the name of its method."""

from __future__ import annotations

from typing import Any

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.core.settings import Settings
from tensorcep.cp.settings.meanfield import PGVB, VMP
from tensorcep.cp.settings.passing import CEP, Laplace
from tensorcep.cp.settings.sampling import Gibbs, PGGibbs
from tensorcep.cp.settings.wopt import WOPT

SETTINGS: dict[str, type[Settings]] = {cls.name: cls for cls in (CEP, Laplace, VMP, WOPT, Gibbs, PGVB, PGGibbs)}


def checked_method(method: Any) -> tuple[str, Settings | None]:
    """The name of a method, or "auto", and the settings that were given with it.

    Raises
    ------
    ValueError
        If it is neither a name nor a record of settings, or a setting has a value that is not allowed.
    """
    if isinstance(method, Settings):
        method.check()
        return method.name, method
    if isinstance(method, type) and issubclass(method, Settings):
        fail_value(f"method must be a name or a record of settings; got the class; write {method.__name__}().")
    return check_choice("method", method, ("auto", *SETTINGS)), None
