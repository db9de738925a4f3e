"""Settings of the engines that fit factor models: ``BayesianPCA(method=Gibbs(burn_in=100))``.

Each is a record of what belongs to one engine alone; a name, ``method="gibbs"``, stands for its defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tensorcep.core.checks import check_choice, check_int, fail_value, word_or_range
from tensorcep.core.settings import Settings


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


def settings_of(method: Any) -> Settings:
    """The settings of a method that is given by name, or as a record of settings.

    Raises
    ------
    ValueError
        If it is neither, or a setting has a value that is not allowed.
    """
    records = tuple(SETTINGS.values())
    if isinstance(method, type) and issubclass(method, Settings):
        fail_value(f"method must be a name or a record of settings; got the class; write {method.__name__}().")
    if isinstance(method, records):
        method.check()
        return method
    if isinstance(method, Settings):
        listed = ", ".join(f"{record.__name__}()" for record in records)
        fail_value(f"method must be one of {listed}, from tensorcep.factor_models.settings; got another {method!r}.")
    return SETTINGS[check_choice("method", method, SETTINGS)]()


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
    raise TypeError(
        f"{estimator} has no parameter 'method_options'; they are settings of the method now, from "
        f"tensorcep.factor_models.settings: {spelling}."
    )


def params_of_file(params: dict[str, Any]) -> dict[str, Any]:
    """The parameters that a file holds; those of version 0.1 as they are spelled now (see `refuse_old_names`)."""
    current = {name: value for name, value in params.items() if name != "method_options"}
    old = params.get("method_options")
    return {**current, "method": SETTINGS[params["method"]](**old)} if old else current
