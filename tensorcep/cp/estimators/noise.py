"""`noise` of CPRegressor: the same everywhere, or one per row of a mode, or per entry; and the same of dispersions."""

from __future__ import annotations

from typing import Any

import numpy as np

from tensorcep.core.belief import Mixture, Posterior
from tensorcep.core.checks import fail_value
from tensorcep.core.components import EntryTheta
from tensorcep.cp.estimators.modes import mode_of, names_of
from tensorcep.cp.estimators.row_features import coupled
from tensorcep.cp.problem import Uneven

# Methods whose noise, or whose dispersion, may differ.
UNEVEN, DISPERSED = ("gibbs", "vmp"), ("vmp", "pg-vb", "gibbs", "pg-gibbs", "cep", "laplace")


def uneven_noise(
    given: Any, labels: Any, method: str, streaming: bool, prior: Any
) -> tuple[Uneven | None, dict[str, Any]]:
    """How the noise differs, by the parameter `noise`; and the fitted attribute noise_.

    Raises
    ------
    ValueError, TypeError
        If there is no such mode, or the method or the prior cannot.
    """
    names = names_of(labels)
    if isinstance(given, str) and given == "one":
        return None, {"noise_": "one"}
    if isinstance(given, str) and given == "auto" and "auto" not in names and not streaming:
        return None, {"noise_": "auto" if method in UNEVEN and coupled(prior) is None else "one"}
    _check_able("noise", given, "one", UNEVEN, method, streaming)
    beside = coupled(prior)
    if beside is not None:
        what = beside.removeprefix("a ")
        fail_value(f"noise={given!r} cannot be used beside {beside}; use noise='one', or leave the {what} out.")
    if isinstance(given, str) and given == "entry" and "entry" not in names:
        return Uneven(None), {"noise_": "entry"}
    if isinstance(given, str) and given not in names:
        fail_value(f"noise must be 'one', 'entry', 'auto', or a mode, one of {names} or its position; got {given!r}.")
    found = Uneven(mode_of(labels, given))
    return found, {"noise_": name_of_noise(found, labels)}


def uneven_dispersion(given: Any, labels: Any, method: str, streaming: bool) -> Uneven | None:
    """How the dispersion differs, by the parameter `dispersion`, if that is a word.

    Raises
    ------
    ValueError
        If there is no such mode, or the method cannot.
    """
    if not isinstance(given, str) or given == "learned":
        return None
    _check_able("dispersion", given, "learned", DISPERSED, method, streaming)
    names = names_of(labels)
    if given not in names:
        fail_value(f"dispersion must be a number > 0, 'learned', or a mode, one of {names}; got {given!r}.")
    return Uneven(mode_of(labels, given))


def _check_able(name: str, given: Any, one: str, able: tuple[str, ...], method: str, streaming: bool) -> None:
    """Refuse what differs, by the parameter `name`, in streams and by methods that are not able; `one` stays."""
    if streaming:
        instead = f"use fit, with all entries, or {name}={one!r}"
        fail_value(f"partial_fit learns one {name}; got {name}={given!r}; {instead}.")
    if method not in able:
        those = " or ".join(f"method={own!r}" for own in able)
        fail_value(f"method {method!r} cannot use {name}={given!r}; use {those}, or {name}={one!r}.")


def check_even(model: Any, theta: EntryTheta | None, needs: str) -> None:
    """Refuse a model whose noise or dispersion differs; `needs` begins the sentence."""
    if theta is None or theta.uneven is None:
        return
    name, one = ("dispersion", "learned") if hasattr(model, "dispersion") else ("noise", "one")
    fail_value(f"{needs} {name}={one!r}; got a fit with {name}={getattr(model, name)!r}; fit with the new rows.")


def has_common_law(result: Any) -> bool:
    """Whether the rows of a mode have a dispersion each, of a law that they have in common, in a result for counts."""
    first = result.members[0] if isinstance(result, Mixture) else result
    known = first.dispersion if isinstance(first, Posterior) else None
    return getattr(first, "uneven", None) is not None or (known is not None and known.mean is not None)


def name_of_noise(uneven: Uneven | None, labels: Any) -> str | int:
    """What the attribute noise_ says of it."""
    if uneven is None:
        return "one"
    if uneven.mode is None:
        return "entry"
    known = labels[uneven.mode]
    return uneven.mode if known is None or known.name is None else str(known.name)


def noise_sd(theta: EntryTheta | None, precision: float) -> float | np.ndarray:
    """Standard deviation of the noise, (m,) where rows of a mode have one each."""
    if theta is not None and theta.factors is not None:
        return float(np.sqrt(np.mean(1.0 / (theta.factors * theta.values[:, 0]))))
    if theta is None or theta.uneven is None:
        return float(precision**-0.5)
    if theta.mode is not None:
        return np.asarray(theta.values.mean(axis=0) ** -0.5)
    alpha = theta.uneven[:, 1]
    return float(np.sqrt(np.mean(alpha / (alpha - 1.0) / theta.values[:, 0])))


def noise_dof(theta: EntryTheta | None) -> float | None:
    """Degrees of freedom of the noise of an entry, or of a row that is not known."""
    return None if theta is None or theta.uneven is None else float(2.0 * np.median(theta.uneven[:, 1]))
