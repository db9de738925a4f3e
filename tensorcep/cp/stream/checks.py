"""What a stream cannot learn, refused before anything changes."""

from __future__ import annotations

from collections.abc import Mapping

from tensorcep.core.belief import Draws, Posterior, first_member
from tensorcep.core.checks import check_choice, fail_value
from tensorcep.cp.fitted.model import FitResult
from tensorcep.cp.inputs.side_information import has_features, is_local, word_of
from tensorcep.cp.methods import STREAMING
from tensorcep.cp.plan.spec import FitSpec, check_revisit
from tensorcep.cp.settings.registry import checked_method
from tensorcep.priors.graph import Graph
from tensorcep.priors.series import Series


def check_stream(spec: FitSpec, fit: FitResult | None) -> None:
    """Refuse parameters with which no stream is learned, as the result so far, if any, has it.

    Raises
    ------
    ValueError
        If the method, or what is to be revisited, does not fit a stream.
    """
    _check_features(spec, fit)
    _check_series(spec, fit)
    target = spec.target
    if target.zero_inflation or (fit is not None and getattr(fit.observation, "inflated", False)):
        fail_value("partial_fit learns no structural zeros; use fit with all entries, or zero_inflation=False.")
    if target.noise != "one" or (fit is not None and getattr(fit.observation, "noise", "one") != "one"):
        fail_value(
            f"partial_fit learns one noise; got noise={target.noise!r}; use fit with all entries, or noise='one'."
        )
    given = target.dispersion
    if isinstance(given, str) and given != "learned":
        fail_value(
            f"partial_fit learns one dispersion; got dispersion={given!r}; use fit with all entries, or "
            "dispersion='learned'."
        )
    # a stream has one, and to make its posterior takes as long as a sweep
    first = None if given is None or fit is None or fit.stream is not None else first_member(fit.posterior)
    common = isinstance(first, Posterior) and first.dispersion is not None and first.dispersion.mean is not None
    if common or getattr(first, "uneven", None) is not None:  # rows with a law in common
        fail_value("partial_fit learns one dispersion; got a fit with one for every row of a mode; fit again.")
    name, _ = checked_method(spec.method)
    if fit is None:
        check_choice("method", name, (*STREAMING, "auto"))
    check_revisit(spec)


def _check_series(spec: FitSpec, fit: FitResult | None) -> None:
    """Refuse series and graphs that a stream cannot learn on.

    Raises
    ------
    ValueError
    """
    given = spec.prior.values() if isinstance(spec.prior, Mapping) else ()
    asked = [known for known in given if isinstance(known, (Series, Graph))]
    series = () if fit is None else fit.series
    what = f"a {type(asked[0]).__name__}" if asked else next((word_of(k) for k in series if k is not None), "")
    if fit is not None and asked and not any(known is not None for known in series):
        fail_value(
            f"partial_fit learns {what} from the first batch or fit on, and this one was without; begin with a new "
            "model."
        )
    if fit is not None and is_local(spec.prior) and not _has_deviations(fit):
        fail_value(
            "partial_fit learns a Series with local= from the first batch or fit on, and this one was without; begin "
            "with a new model."
        )
    if not what:
        return
    if fit is not None and fit.stream is None:
        _check_fit_with_series(fit, what)
    if spec.forget:
        fail_value(f"rows of {what} forget as its law says; got forget={spec.forget:g}; set forget=0.")
    if spec.revisit:
        fail_value(f"revisit holds messages beside a prior that stays, not one that {what} moves; set revisit=0.")


def _has_deviations(fit: FitResult) -> bool:
    """Whether rows of a model deviate along another mode."""
    if fit.stream is not None:
        return fit.stream.state.pairs is not None
    return getattr(first_member(fit.posterior), "deviations", None) is not None


def _check_fit_with_series(fit: FitResult, what: str) -> None:
    """Refuse fits that do not hold what entries said of the rows of a series or a graph.

    Raises
    ------
    ValueError
    """
    first = first_member(fit.posterior)
    if isinstance(first, Draws):
        fail_value(
            f"partial_fit cannot go on from the draws of {fit.method!r} with {what}; fit by 'cep', 'vmp', "
            "'laplace' or 'pg-vb', or begin with partial_fit."
        )
    modes = getattr(first, "mode_prior", None)
    learned = modes is not None and any(drift is not None for drift in modes.drifts)
    deviations = getattr(first, "deviations", None)
    told = bool(getattr(first, "sites", ())) and (deviations is None or deviations.told is not None)
    if learned and (fit.expected is None or not told):
        fail_value(f"partial_fit cannot go on from a file of an earlier version with {what}; fit the model again.")


def _check_features(spec: FitSpec, fit: FitResult | None) -> None:
    """Refuse features that a stream cannot learn on.

    Raises
    ------
    ValueError
    """
    if fit is not None and has_features(spec.prior) and not any(fit.features):
        fail_value(
            "partial_fit learns features from the first batch on, and this fit had none; begin with a new model."
        )
    if not (has_features(spec.prior) if fit is None else any(fit.features)):
        return
    if spec.revisit:
        fail_value("revisit holds messages beside a prior that stays, not one that Features move; set revisit=0.")
    if fit is None or fit.stream is not None:
        return
    if isinstance(first_member(fit.posterior), Draws):
        fail_value(
            f"partial_fit cannot go on from the draws of {fit.method!r} with Features; fit by 'cep', 'vmp', "
            "'laplace' or 'pg-vb', or begin with partial_fit."
        )
    if fit.expected is None:
        fail_value("partial_fit cannot go on from a file of an earlier version with Features; fit the model again.")
