"""What the settings of all engines have in common: values are checked, and they print, clone and pickle as parameters.

A module of settings imports no engine, so that naming a method loads no compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from tensorcep.core.checks import check_choice, fail_value

# A setting that may be "auto" or None until a fit is planned; engines see the number.
Decided = Any


@dataclass(repr=False, kw_only=True)
class Settings:
    """Settings of one engine: ``method=CEP(damping=0.5)`` says which engine, and how it is to work.

    Two records are equal when they are of one engine and all their values are. `get_params` and `set_params` are those
    of scikit-learn: records are cloned with the estimator, and searches over parameters reach ``method__damping``.
    """

    name: ClassVar[str]

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse values that are not allowed.

        Raises
        ------
        ValueError
            With one sentence that names the first of them.
        """

    def __repr__(self) -> str:
        values = self.get_params()
        changed = [f"{f.name}={values[f.name]!r}" for f in fields(self) if values[f.name] != f.default]
        return f"{type(self).__name__}({', '.join(changed)})"

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return all settings by name; `deep` is for scikit-learn and changes nothing."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **params: Any) -> Any:
        """Set some settings, all of them or, if a name or a value is not allowed, none; returns self."""
        known = self.get_params()
        for name in params:
            if name not in known:
                fail_value(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(known)}.")
        for name, value in replace(self, **params).get_params().items():
            setattr(self, name, value)
        return self


def settings_of(method: Any, records: Mapping[str, type[Settings]]) -> Settings:
    """The settings of a method: those given, or the defaults of the one that is named.

    Parameters
    ----------
    method : str or Settings
    records : dict
        The records that an estimator takes, by the names of their methods.

    Raises
    ------
    ValueError
        If it is neither a name nor one of those records, or a setting has a value that is not allowed.
    """
    listed = ", ".join(f"{record.__name__}()" for record in records.values())
    if isinstance(method, type) and issubclass(method, Settings):
        fail_value(f"method must be a name or a record of settings; got the class; write {method.__name__}().")
    if isinstance(method, Settings):
        if type(method) is not records.get(method.name):
            fail_value(f"method must be one of {listed}, or a name; got {method!r} of another family.")
        method.check()
        return method
    return records[check_choice("method", method, records)]()
