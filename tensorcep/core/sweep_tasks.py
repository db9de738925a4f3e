"""scikit-learn's callbacks (from its version 1.9 on): a fit is a task, and so is every sweep of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

try:
    from sklearn import callback as _sklearn
except ImportError:  # an earlier scikit-learn
    _sklearn = None

CONTEXT = "_callback_fit_ctx"
F = TypeVar("F", bound=Callable[..., Any])


class _Nothing:
    """What an earlier scikit-learn supports."""


CallbackSupportMixin: Any = _Nothing if _sklearn is None else _sklearn.CallbackSupportMixin


def with_callbacks(method: F) -> F:
    """Return a method that takes care of the callbacks at its end, however it ends."""
    managed: F = method if _sklearn is None else _sklearn.with_callbacks(method)
    return managed


def begin_fit(model: Any, X: Any, y: Any) -> None:
    """Tell scikit-learn's callbacks that a fit begins; how many sweeps it has is not known yet."""
    if _sklearn is not None:
        context = model._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=model, X=X, y=y)


def end_fit(model: Any, X: Any, y: Any) -> None:
    """Tell them that it ended."""
    context = vars(model).get(CONTEXT)
    if context is not None:
        context.call_on_fit_task_end(estimator=model, X=X, y=y, reconstruction_attributes={})  # it has them all


def sweep_callbacks(model: Any) -> tuple[Callable[[int, Any, Any], bool], ...]:
    """What tells them of every sweep, if a fit has begun; a callback that asks for it stops the fit."""
    context = vars(model).get(CONTEXT)
    if context is None:
        return ()

    def told(n: int, sweep: Any, state: Any) -> bool:
        task = context.subcontext(task_name="sweep")
        task.call_on_fit_task_begin(estimator=model)
        return bool(task.call_on_fit_task_end(estimator=model))

    return (told,)
