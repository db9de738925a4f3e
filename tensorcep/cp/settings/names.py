"""The settings of every engine by the name of its method, and as what a file can hold."""

from __future__ import annotations

from typing import Any

from tensorcep.core.checks import check_choice, fail_value
from tensorcep.core.store import is_plain, plain
from tensorcep.cp.settings.meanfield import PGVB, VMP
from tensorcep.cp.settings.passing import CEP, Laplace
from tensorcep.cp.settings.record import Settings
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


def plain_params(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an estimator that JSON can hold; of a record of settings the method's name and all values."""
    stored = {
        name: {"name": value.name, **value.get_params()} if isinstance(value, Settings) else value
        for name, value in params.items()
    }
    return {name: plain(value) for name, value in stored.items() if is_plain(value)}


def unpacked_settings(stored: dict[str, Any]) -> Settings:
    """The record that `plain_params` stored."""
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in stored.items()}
    return SETTINGS[check_choice("method", values.pop("name", None), SETTINGS)](**values)
