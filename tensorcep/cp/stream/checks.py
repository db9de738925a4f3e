"""What a stream cannot learn, refused before anything changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tensorcep.core.belief import Draws, first_member
from tensorcep.core.checks import check_choice, check_int, fail_value
from tensorcep.cp.inputs.side_information import has_features, is_local, word_of
from tensorcep.cp.settings.messages import CEP
from tensorcep.cp.settings.registry import checked_method
from tensorcep.cp.stream.adf import STREAMING
from tensorcep.cp.targets.real import has_common_law
from tensorcep.priors.graph import Graph
from tensorcep.priors.series import Series

if TYPE_CHECKING:
    from tensorcep.cp.estimators.base import BaseCP


def check_stream(model: BaseCP) -> None:
    """Refuse parameters with which an estimator cannot learn from a stream.

    Raises
    ------
    ValueError
        If the method, or what is to be revisited, does not fit a stream.
    """
    _check_features(model)
    _check_series(model)
    own = vars(model)  # to ask for what an estimator does not have takes as long as a sweep
    if own.get("zero_inflation", False) or own.get("_inflated", False):
        fail_value("partial_fit learns no structural zeros; use fit with all entries, or zero_inflation=False.")
    if own.get("noise", "one") != "one" or own.get("noise_", "one") != "one":
        fail_value(
            f"partial_fit learns one noise; got noise={model.noise!r}; use fit with all entries, or noise='one'."
        )
    given = own.get("dispersion", "learned")
    if isinstance(given, str) and given != "learned":
        fail_value(
            f"partial_fit learns one dispersion; got dispersion={given!r}; use fit with all entries, or "
            "dispersion='learned'."
        )
    if "dispersion" in own and has_common_law(own.get("posterior_")):
        fail_value("partial_fit learns one dispersion; got a fit with one for every row of a mode; fit again.")
    name, _ = checked_method(model.method)
    if "posterior_" not in own and "_stream" not in own:
        check_choice("method", name, (*STREAMING, "auto"))
    check_revisit(model)


def check_revisit(model: BaseCP) -> None:
    """Refuse revisits to methods that have no message of every entry.

    Raises
    ------
    ValueError
    """
    if not check_int("revisit", model.revisit, 0):
        return
    name, settings = checked_method(model.method)
    if name not in ("cep", "auto"):
        fail_value(f"revisit needs the messages of method='cep'; got method={name!r}; set revisit=0.")
    if isinstance(settings, CEP) and settings.messages != "full":
        fail_value("revisit needs the message of every entry; got messages='averaged'; set revisit=0.")


def _check_series(model: BaseCP) -> None:
    """Refuse series and graphs that a stream cannot learn on.

    Raises
    ------
    ValueError
    """
    own, given = vars(model), model.prior.values() if isinstance(model.prior, Mapping) else ()
    asked = [known for known in given if isinstance(known, (Series, Graph))]
    what = f"a {type(asked[0]).__name__}" if asked else next((word_of(k) for k in model._series if k is not None), "")
    goes_on = "_stream" in own or "posterior_" in own
    if goes_on and asked and not any(known is not None for known in model._series):
        fail_value(
            f"partial_fit learns {what} from the first batch or fit on, and this one was without; begin with a new "
            "model."
        )
    if goes_on and is_local(model.prior) and not _has_deviations(model):
        fail_value(
            "partial_fit learns a Series with local= from the first batch or fit on, and this one was without; begin "
            "with a new model."
        )
    if not what:
        return
    if goes_on and "_stream" not in own:
        _check_fit_with_series(model, what)
    if model.forget:
        fail_value(f"rows of {what} forget as its law says; got forget={model.forget:g}; set forget=0.")
    if model.revisit:
        fail_value(f"revisit holds messages beside a prior that stays, not one that {what} moves; set revisit=0.")


def _has_deviations(model: BaseCP) -> bool:
    """Whether rows of a model deviate along another mode."""
    own = vars(model)
    if "_stream" in own:
        return own["_stream"].state.pairs is not None
    return getattr(first_member(model.posterior_), "deviations", None) is not None


def _check_fit_with_series(model: BaseCP, what: str) -> None:
    """Refuse fits that do not hold what entries said of the rows of a series or a graph.

    Raises
    ------
    ValueError
    """
    first = first_member(model.posterior_)
    if isinstance(first, Draws):
        fail_value(
            f"partial_fit cannot go on from the draws of {model.method_!r} with {what}; fit by 'cep', 'vmp', "
            "'laplace' or 'pg-vb', or begin with partial_fit."
        )
    modes = getattr(first, "mode_prior", None)
    learned = modes is not None and any(drift is not None for drift in modes.drifts)
    deviations = getattr(first, "deviations", None)
    told = bool(getattr(first, "sites", ())) and (deviations is None or deviations.told is not None)
    if learned and (model._expected is None or not told):
        fail_value(f"partial_fit cannot go on from a file of an earlier version with {what}; fit the model again.")


def _check_features(model: BaseCP) -> None:
    """Refuse features that a stream cannot learn on.

    Raises
    ------
    ValueError
    """
    goes_on = "_stream" in vars(model) or "posterior_" in vars(model)
    if goes_on and has_features(model.prior) and not any(model._features):
        fail_value(
            "partial_fit learns features from the first batch on, and this fit had none; begin with a new model."
        )
    if not (any(model._features) if goes_on else has_features(model.prior)):
        return
    if model.revisit:
        fail_value("revisit holds messages beside a prior that stays, not one that Features move; set revisit=0.")
    if "_stream" in vars(model) or not goes_on:
        return
    if isinstance(first_member(model.posterior_), Draws):
        fail_value(
            f"partial_fit cannot go on from the draws of {model.method_!r} with Features; fit by 'cep', 'vmp', "
            "'laplace' or 'pg-vb', or begin with partial_fit."
        )
    if model._expected is None:
        fail_value("partial_fit cannot go on from a file of an earlier version with Features; fit the model again.")
