"""Settings of the engines that fit factor models: ``BayesianPCA(method=Gibbs(burn_in=100))``.

Each is a record of what belongs to one engine alone; a name, ``method="gibbs"``, stands for its defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tensorcep.core.checks import check_int, word_or_range
from tensorcep.core.settings import Settings, settings_of


@dataclass(repr=False, kw_only=True)
class VB(Settings):
    """Variational inference with a joint Gaussian for every row. It has no settings.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models, sec. 2.2, 4.1.2 and 4.2.2.
    """

    name: ClassVar[str] = "vb"


@dataclass(repr=False, kw_only=True)
class FactorisedVB(Settings):
    """Fully factorised variational inference: no matrix to invert.

    Parameters
    ----------
    step : float or "best", default="best"
        Part of the Newton-like step to take, the same for all (the paper: 0.3), or for every row the length that
        raises the lower bound most, which never lowers it and costs one more product per entity.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models, sec. 2.2 and 4.1.2.
    """

    name: ClassVar[str] = "vb-factorized"

    step: float | str = "best"

    def check(self) -> None:
        word_or_range("step", self.step, ("best",), 0.0, 1.0, include_low=False)


@dataclass(repr=False, kw_only=True)
class Gibbs(Settings):
    """Gibbs sampling; `max_iter` of the estimator is the number of sweeps.

    Parameters
    ----------
    burn_in : int, default=200
        Sweeps before the first draw that is kept.
    thin : int, default=5
        Every how many sweeps one is kept.

    References
    ----------
    Klami (2014), Polya-Gamma augmentations for factor models, sec. 2.1, 4.1.1, 4.2.1 and 4.3.
    """

    name: ClassVar[str] = "gibbs"

    burn_in: int = 200
    thin: int = 5

    def check(self) -> None:
        check_int("burn_in", self.burn_in, 0)
        check_int("thin", self.thin)


SETTINGS: dict[str, type[Settings]] = {record.name: record for record in (FactorisedVB, VB, Gibbs)}


def refuse_old_names(estimator: str, params: dict[str, Any]) -> None:
    """Refuse the parameter of version 0.1 that held settings of the method, and say how they are written.

    Raises
    ------
    TypeError
        If it is there.
    """
    if "method_options" not in params:
        return
    given = params["method_options"]
    values = given if isinstance(given, dict) else {}
    method = params.get("method")
    asked = [type(method)] if isinstance(method, Settings) else []
    asked += [SETTINGS[method]] if isinstance(method, str) and method in SETTINGS else []
    fitting = [record for record in (*asked, *SETTINGS.values()) if values.keys() <= record().get_params().keys()]
    record = (*fitting, FactorisedVB)[0]
    spelling = f"method={record.__name__}({', '.join(f'{name}={value!r}' for name, value in values.items())})"
    raise TypeError(f"{estimator} has no parameter 'method_options'; settings are given with the method: {spelling}.")


def plain_method(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters with a record of settings as what a file can hold: its method's name and all values."""
    method = params["method"]
    if not isinstance(method, Settings):
        return params
    return {**params, "method": {"name": method.name, **method.get_params()}}


def params_of_file(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a file holds, those of version 0.1 as they are spelled now."""
    current = {name: value for name, value in params.items() if name != "method_options"}
    method, old = params.get("method"), params.get("method_options")
    if isinstance(method, dict):
        values = {name: value for name, value in method.items() if name != "name"}
        return {**current, "method": SETTINGS[method["name"]](**values)}
    return {**current, "method": SETTINGS[method](**old)} if isinstance(method, str) and old else current


def checked_settings(method: Any) -> Settings:
    """The settings of a factor model's method, given as a name or as a record of them."""
    return settings_of(method, SETTINGS)
