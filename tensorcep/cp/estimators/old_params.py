"""Parameters of version 0.1 that are settings of the method since: refused in calls, translated in files."""

from __future__ import annotations

from typing import Any

from tensorcep.core.settings import Settings
from tensorcep.cp.settings.names import SETTINGS

# The parameters of 0.1, what they were by default, and their names now.
OLD_DEFAULTS: dict[str, Any] = {
    "schedule": "modewise",
    "moments": "cavity",
    "order": 1,
    "damping": "auto",
    "anneal": "auto",
    "n_init": 3,
    "n_ensemble": "auto",
    "dtype": "float64",
    "method_options": None,
}
RENAMED = {"n_init": "n_starts"}


def refuse_old_names(estimator: str, params: dict[str, Any], method: Any) -> None:
    """Refuse parameters that are settings of the method now, and say how they are written.

    Raises
    ------
    TypeError
        If there are some.
    """
    old = [name for name in params if name in OLD_DEFAULTS]
    if not old:
        return
    values = {RENAMED.get(name, name): params[name] for name in old if name != "method_options"}
    own = params.get("method_options")
    values.update(own if isinstance(own, dict) else {})
    engine = _engine_with(values, method).__name__
    settings = f"method={engine}({', '.join(f'{name}={value!r}' for name, value in values.items())})"
    listed = ", ".join(repr(name) for name in old)
    what, are = ("parameter", "it is a setting") if len(old) == 1 else ("parameters", "they are settings")
    raise TypeError(f"{estimator} has no {what} {listed}; {are} of the method now: {settings}.")


def _engine_with(values: dict[str, Any], method: Any) -> type[Settings]:
    """The engine that is asked for, if it has these settings; otherwise the first that has."""
    asked = [type(method)] if isinstance(method, Settings) else []
    asked += [SETTINGS[method]] if isinstance(method, str) and method in SETTINGS else []
    fitting = [cls for cls in (*asked, *SETTINGS.values()) if values.keys() <= cls().get_params().keys()]
    return fitting[0] if fitting else [*asked, SETTINGS["cep"]][0]


def params_of_file(params: dict[str, Any], fitted_method: str | None) -> dict[str, Any]:
    """The parameters that a file holds, as they are now.

    Parameters
    ----------
    params : dict
        As stored, perhaps with the names of 0.1.
    fitted_method : str or None
        The method of the fit, which those settings are for where the parameter is "auto".
    """
    method = params.get("method")
    old = {name: params[name] for name in params if name in OLD_DEFAULTS}
    if not old:
        return params
    current = {name: value for name, value in params.items() if name not in old}
    name = fitted_method if method == "auto" else method
    if name not in SETTINGS:
        return current
    changed = {RENAMED.get(n, n): value for n, value in old.items() if value != OLD_DEFAULTS[n]}
    changed |= changed.pop("method_options", None) or {}
    engine = SETTINGS[name]
    known = engine().get_params()
    values = {n: tuple(v) if isinstance(v, list) else v for n, v in changed.items() if n in known}
    settings = engine(**values)
    return {**current, "method": settings} if settings != engine() else current
