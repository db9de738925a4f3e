"""Several inference methods on the same held-out entries: accuracy, calibration, time and memory side by side."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import pandas as pd

from tensorcep.core.checks import check_choice, check_fraction, fail_value
from tensorcep.core.cluster import cluster_of
from tensorcep.core.settings import Settings
from tensorcep.cp.estimators.regressor import CPRegressor
from tensorcep.model_selection.held_out import HeldOut, HeldOutPoints, Matrices, held_out, with_method

MEGABYTE = 1e6


def compare(
    tensor_train: Any,
    tensor_test: Any,
    methods: Iterable[str | Settings] | None = None,
    *,
    estimator: Any = None,
    params: Mapping[str, Mapping[str, Any]] | None = None,
    coverage: float = 0.9,
    client: Any = None,
) -> pd.DataFrame:
    """Fit the same model by several methods and score each on held-out entries.

    Parameters
    ----------
    tensor_train, tensor_test : SparseTensor, or list of them for a factor model of several matrices
        Entries to fit, and entries to predict; the two should have none in common. For a model of points with features
        pairs (X, y).
    methods : iterable of str or records of settings, optional
        Names, or records from `tensorcep.methods`, whose text is then their name here: ``["vmp", CEP(order=2)]``; by
        default every method that fits the estimator, with its default settings.
    estimator : CP estimator, factor model, Bayesian GLM, Bayes point machine or Gaussian process, optional
        The model and what all methods share: rank, priors, tolerance, seed. It is cloned, not fitted. What is "auto"
        may come to different models for different methods. Default: ``CPRegressor(random_state=0)``.
    params : mapping, optional
        Per method, parameters of the estimator for it alone, such as ``{"vmp": {"max_iter": 500}}``.
    coverage : float, default=0.9
        Of the central predictive intervals.
    client : distributed.Client, optional
        Of a Dask cluster, whose workers fit the methods; scores are the same, seconds and memory are theirs (with one
        thread per worker).

    Returns
    -------
    DataFrame
        One line per method, in the order given. Columns:

        * "rmse", or "auc" for labels (nan when the test entries have one label only);
        * "log_score", the mean log predictive density or probability, higher is better (a point estimate is plugged
          in);
        * "coverage", the share of test values inside their interval, good when it equals `coverage` (nan for labels,
          and for a point estimate, which has no intervals);
        * "calibration_error": of labels the expected calibration error; otherwise the mean distance of the coverage of
          the 50, 80, 90 and 95 % intervals from those numbers (counts jump, so theirs cannot be 0);
        * "sweeps", and "seconds" of the fit once its kernels are compiled;
        * "peak_mb", the most memory, in units of 1e6 bytes, that Python and NumPy held during the fit beyond what they
          held before it.

        For factor models intervals are those of real values, and scores are means over all held-out cells. Of more than
        two classes the calibration is that of the most probable one.

    Raises
    ------
    TypeError, ValueError
        If an argument is not allowed.

    Examples
    --------
    >>> from tensorcep import CPRegressor, compare, datasets
    >>> train, test = datasets.load_il2().train_test_split(test_size=0.2, random_state=0)
    >>> table = compare(train, test, ["cep", "vmp"], estimator=CPRegressor(rank=3, random_state=0))
    >>> list(table.index)
    ['cep', 'vmp']
    """
    estimator = CPRegressor(random_state=0) if estimator is None else estimator
    data = held_out(estimator, tensor_train, tensor_test)
    check_fraction("coverage", coverage)
    chosen, params = data.methods(estimator, methods), params or {}
    for name in () if isinstance(data, Matrices) else params:
        check_choice("a name in params", name, chosen)
    models = {
        name: with_method(estimator, method).set_params(**params.get(name, {})) for name, method in chosen.items()
    }
    if client is not None and isinstance(data, HeldOutPoints):
        fail_value(f"client= is for models of tensors and matrices; {type(estimator).__name__} is fitted here.")
    cluster = cluster_of(client)
    if cluster is None:
        lines = [measure(model, data, coverage) for model in models.values()]
    else:
        held = cluster.put(data)
        calls = [(model, held, coverage) for model in models.values()]
        lines = [told.value for told in cluster.run(measure, calls, "compare", patient=True)]
    return pd.DataFrame(lines, index=pd.Index(list(models), name="method"))


def measure(model: Any, data: HeldOut, coverage: float) -> dict[str, float]:
    """A line of the table: the fit of one model, and its scores."""
    data.warm_up(model)
    cost = cost_of(partial(data.fit, model))
    return {**data.scores(model, coverage), "sweeps": model.n_iter_, **cost}


def cost_of(fit: Callable[[], Any]) -> dict[str, float]:
    """Seconds of a fit, and the most memory that it held, in MB."""
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        begin = time.perf_counter()
        fit()
        seconds = time.perf_counter() - begin
        _, peak = tracemalloc.get_traced_memory()
    finally:
        if not tracing:
            tracemalloc.stop()
    return {"seconds": seconds, "peak_mb": (peak - before) / MEGABYTE}
