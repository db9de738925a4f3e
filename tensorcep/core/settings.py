"""Settings of an engine as a record: values are checked, and they print, clone and pickle as parameters.

A module of settings imports no engine, so that naming a method loads no compiled code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from tensorcep.core.checks import fail_value


@dataclass(repr=False, kw_only=True)
class Settings:
    """Settings of one engine: ``method=CEP(damping=0.5)`` says which engine, and how it is to work.

    Two records are equal when they are of one engine and all their values are. `get_params` and `set_params` are those
    of scikit-learn: records are cloned with the estimator, and searches over parameters reach ``method__damping``.

    Attributes
    ----------
    name : str
        What the method is called where a name is enough.
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

    def changed(self) -> dict[str, Any]:
        """Return the settings that are not the default."""
        values = self.get_params()
        return {field.name: values[field.name] for field in fields(self) if values[field.name] != field.default}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.changed().items())})"

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
