"""What a stream cannot learn, refused before anything changes."""

from __future__ import annotations

from tensorcep.core.belief import Posterior, first_member
from tensorcep.core.checks import fail_value
from tensorcep.cp.fitted.model import FitResult
from tensorcep.cp.inputs.side_information import coupled, has_features, is_local, word_of
from tensorcep.cp.methods import refuse_unable
from tensorcep.cp.plan.spec import FitSpec, check_revisit
from tensorcep.cp.settings.registry import checked_method


def check_stream(spec: FitSpec, fit: FitResult | None) -> None:
    """Refuse parameters with which no stream is learned, as the result so far, if any, has it."""
    _check_known(spec, fit)
    target, before = spec.target, None if fit is None else fit.observation
    if target.zero_inflation or getattr(before, "inflated", False):
        fail_value("partial_fit learns no structural zeros; use fit with all entries, or zero_inflation=False.")
    by_mode = isinstance(target.dispersion, str) and target.dispersion != "learned"
    for name, one, differs in (
        ("noise", "one", target.noise != "one" or getattr(before, "noise", "one") != "one"),
        ("dispersion", "learned", by_mode),
    ):
        if differs:
            got = f"{name}={getattr(target, name)!r}"
            fail_value(f"partial_fit learns one {name}; got {got}; use fit with all entries, or {name}={one!r}.")
    # a stream has one, and to make its posterior takes as long as a sweep
    first = None if target.dispersion is None or fit is None or fit.stream is not None else first_member(fit.posterior)
    common = isinstance(first, Posterior) and first.dispersion is not None and first.dispersion.mean is not None
    if common or getattr(first, "uneven", None) is not None:  # rows with a law in common
        fail_value("partial_fit learns one dispersion; got a fit with one for every row of a mode; fit again.")
    name, _ = checked_method(spec.method)
    if fit is None and name != "auto":
        refuse_unable(name, "streams", "learns no streams (partial_fit)")
    check_revisit(spec)


def _check_known(spec: FitSpec, fit: FitResult | None) -> None:
    """Refuse features, series and graphs that a stream cannot learn on."""
    asks_features, coupling = has_features(spec.prior), coupled(spec.prior)
    if fit is not None:
        features, series = any(fit.features), [word_of(known) for known in fit.series if known is not None]
        for what, asked, known in (
            ("Features", asks_features, features),
            (coupling, coupling is not None, bool(series)),
            ("a Series with local=", is_local(spec.prior), _has_deviations(fit)),
        ):
            if asked and not known:
                fail_value(
                    f"partial_fit learns {what} from the first batch or fit on, and this one was without; begin with a "
                    "new model."
                )
        asks_features, coupling = features, coupling or next(iter(series), None)
    for what in ["Features"] * asks_features + [coupling] * (coupling is not None):
        if fit is not None and fit.stream is None:
            _check_goes_on(fit, str(what))
        if spec.forget and what == coupling:
            fail_value(f"rows of {what} forget as its law says; got forget={spec.forget:g}; set forget=0.")
        if spec.revisit:
            fail_value(f"revisit holds messages beside a prior that stays, not one moved by {what}; set revisit=0.")


def _has_deviations(fit: FitResult) -> bool:
    """Whether rows of a model deviate along another mode."""
    if fit.stream is not None:
        return fit.stream.state.pairs is not None
    return getattr(first_member(fit.posterior), "deviations", None) is not None


def _check_goes_on(fit: FitResult, what: str) -> None:
    """Refuse fits that do not hold what entries said of the rows that are known by features, a series or a graph."""
    cannot = f"gives draws, from which partial_fit cannot go on with {what}"
    refuse_unable(fit.method, "gaussian", cannot, fit.likelihood, instead="partial_fit from the first batch on")
    first = first_member(fit.posterior)
    deviations, sites = getattr(first, "deviations", None), getattr(first, "sites", ())
    told = bool(sites) and (deviations is None or deviations.told is not None)
    if fit.expected is None or (any(known is not None for known in fit.series) and not told):
        fail_value(f"partial_fit cannot go on from a file of an earlier version with {what}; fit the model again.")
