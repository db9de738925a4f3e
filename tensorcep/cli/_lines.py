"""Lines about a fitted model of a tensor, which several commands print."""

from __future__ import annotations

from typing import Any

import numpy as np

# The mean-field method beside a sampler, and the seconds of a fit from which one is told of it.
QUICKER, LONG = {"gibbs": "vmp", "pg-gibbs": "pg-vb"}, 10.0
# what the columns of each part are called
COLUMNS = {"main": "per mode", "pair": "per pair of modes", "cp": "of all modes"}


def fit_line(model: Any) -> str:
    """How the fit ended; a sampler makes all its sweeps, whatever they change."""
    from tensorcep.cp.methods import METHODS

    if METHODS[model.method_].capabilities.sampler:
        return f"{model.n_iter_} sweeps of every chain"
    ending = "converged" if model.converged_ else "not converged"
    changes = model.trace_.get("change", ())
    return f"{model.n_iter_} sweeps, {ending}" + (f" (last change {changes[-1]:.1e})" if len(changes) else "")


def method_line(model: Any) -> str:
    """What "auto" came to."""
    columns = ", ".join(f"{n} {COLUMNS[name]}" for name, n in model.interactions_.items() if n)
    return f"{model.method_}, rank {model.rank_}, {model.prior_} prior; columns: {columns}"


def hint_line(method: Any, fitted: str, seconds: float) -> str | None:
    """What would be faster than a sampler that nobody asked for; None where a fit did not take long."""
    quick = QUICKER.get(fitted) if method in (None, "auto") and seconds > LONG else None
    return None if quick is None else f"hint        --method {quick} (mean field) takes a fraction of the time"


def noise_lines(model: Any) -> list[str]:
    """What is known of noise and limit of real values, or of dispersion and structural zeros of counts."""
    lines = []
    if getattr(model, "zero_share_", None) is not None:
        share, sd = 100.0 * model.zero_share_, 100.0 * model.zero_share_std_
        lines = [f"zeros       {share:.3g} % of the cells are 0 whatever their mean (+- {sd:.2g} %)"]
    if getattr(model, "dispersion_", None) is not None:
        return [*lines, f"dispersion  r = {np.mean(model.dispersion_):.4g}; the variance of a count is mu + mu^2 / r"]
    if hasattr(model, "thresholds_"):
        cuts = ", ".join(f"{cut:.3g}" for cut in model.thresholds_)
        return [f"thresholds  {cuts} between the levels {', '.join(map(str, model.classes_.tolist()))}"]
    if not hasattr(model, "noise_precision_"):
        return lines
    known = {} if model.diagnostics_ is None else model.diagnostics_.lines()
    lines = [f"noise       {known.get('noise', f'standard deviation {model.noise_precision_**-0.5:.4g}')}"]
    if getattr(model, "power_", 1.0) != 1.0:
        what = f"values to the power {model.power_:g}" if model.power_ else "logarithms of values"
        lines.append(f"power       {what} are Gaussian")
    for name, side in (("lower_limit_", "below"), ("upper_limit_", "above")):
        limit = getattr(model, name, None)
        lines += [] if limit is None else [f"limit       values at or {side} {limit:g} are censored there"]
    return lines


def health_lines(model: Any) -> list[str]:
    """How far the fit is to be believed, but for what the other lines say."""
    lines = {} if model.diagnostics_ is None else model.diagnostics_.lines()
    return [f"{name:<12}{text}" for name, text in lines.items() if name not in ("sweeps", "noise")]
