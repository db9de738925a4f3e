"""What the settings of all engines have in common: values are checked, and they print, clone and pickle as parameters.

A module of settings imports no engine, so that naming a method loads no compiled code.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from tensorcep.core.checks import check_int, check_range, fail_value, word_or_range

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


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        fail_value(f"{name} must be True or False; got {value!r}.")


def check_pair(name: str, value: Any) -> None:
    """Refuse what is no pair of positive numbers."""
    if not isinstance(value, (tuple, list)) or len(value) != 2:
        fail_value(f"{name} must be a pair (a, b) of positive numbers; got {value!r}.")
    for i, item in enumerate(value):
        check_range(f"{name}[{i}]", item, 0.0, include_low=False)


def check_annealing(anneal: Any, power: Any) -> None:
    """Refuse numbers of annealed sweeps, and what an entry counts in them, that are not allowed."""
    if isinstance(anneal, str):
        if anneal != "auto":
            fail_value(f"anneal must be 'auto' or an integer >= 0; got {anneal!r}.")
    else:
        check_int("anneal", anneal, 0)
    check_range("anneal_power", power, 1.0)


def check_damping(damping: Any, *words: str) -> None:
    """Refuse what is neither one of the words nor a share of the old message that may be kept."""
    word_or_range("damping", damping, words, 0.0, 1.0, include_high=False)


def check_starts(n_starts: Any, n_ensemble: Any) -> None:
    """Refuse numbers of starts and of mixed fits that are not allowed."""
    check_int("n_starts", n_starts)
    if n_ensemble != "auto":
        check_int("n_ensemble", n_ensemble)
