"""The loop that every method runs in: tolerance, callbacks, trace, progress, threads; and the registry of methods."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import fit, problem

from tensorcep.core.executor import ThreadExecutor
from tensorcep.core.loop import Method, Sweep, run
from tensorcep.cp.cep.method import CEP
from tensorcep.cp.methods import METHODS, get_method
from tensorcep.likelihoods import get_likelihood

TRACE = {"change", "noise_precision", "skipped", "shrunk", "train_score", "lower_bound", "seconds"}


def countdown(changes):
    """A method without arithmetic whose changes are given; its posterior is how often it stepped."""

    def step(state, problem, options, threads):
        return state + 1, Sweep(changes[state], np.nan, 0, 0, 0.0)

    return Method("countdown", (), object, lambda *_: 0, step, lambda state, _: state, "none")


def test_run_stops_at_the_first_change_below_the_tolerance():
    result = run(countdown([1.0, 0.5, 0.01, 0.001, 1e-9]), None, None, max_iter=5, tol=0.01)
    assert (result.n_iter, result.converged, result.posterior) == (4, True, 4)
    np.testing.assert_array_equal(result.trace["change"], [1.0, 0.5, 0.01, 0.001])


def test_run_stops_at_max_iter_without_converging():
    result = run(countdown([1.0] * 3), None, None, max_iter=3, tol=0.5)
    assert (result.n_iter, result.converged) == (3, False)


def test_run_does_not_take_nan_for_convergence():
    result = run(countdown([np.nan] * 3), None, None, max_iter=3, tol=0.5)
    assert (result.n_iter, result.converged) == (3, False)


def test_run_calls_every_callback_and_stops_when_one_says_true():
    calls = []

    def first(sweep, info, state):
        calls.append(("first", sweep, state))
        return sweep == 2

    def second(sweep, info, state):
        calls.append(("second", sweep, info.change))

    result = run(countdown([4.0, 3.0, 2.0]), None, None, max_iter=3, tol=0.0, callbacks=[first, second])
    assert (result.n_iter, result.converged) == (2, False)
    assert calls == [("first", 1, 1), ("second", 1, 4.0), ("first", 2, 2), ("second", 2, 3.0)]


def test_run_stops_when_a_callback_returns_numpys_true():
    result = run(countdown([1.0] * 3), None, None, max_iter=3, tol=0.0, callbacks=[lambda *_: np.bool_(True)])
    assert result.n_iter == 1


def test_run_trace_has_one_number_per_sweep(rng):
    _, _, p = problem(rng, 3, 2, 30)
    trace = fit(p, 4).trace
    assert set(trace) == TRACE
    assert all(values.shape == (4,) for values in trace.values())
    assert (trace["seconds"] > 0).all()


def test_run_shows_progress_only_when_asked(rng, capfd):
    for verbose in (False, True):
        run(countdown([1.0] * 3), None, None, max_iter=3, tol=0.0, verbose=verbose)
        shown = capfd.readouterr()
        assert shown.out == ""
        assert ("3/3" in shown.err) is verbose


@each("n", [1, 2, 3, 8])
@each("align", [1, 16])
@each("size", [0, 1, 16, 17, 100])
def test_threads_cover_the_range_once_in_aligned_parts(n, align, size):
    threads, parts = ThreadExecutor(n), []
    threads.run(lambda a, b: parts.append((a, b)), 0, size, align=align)
    threads.close()
    parts.sort()
    covered = [i for a, b in parts for i in range(a, b)]
    assert covered == list(range(size))
    assert all(a % align == 0 for a, _ in parts)
    assert len(parts) <= n


def test_threads_pass_on_an_error():
    threads = ThreadExecutor(2)

    def work(a, b):
        if a > 0:
            raise ArithmeticError("of one part")

    with pytest.raises(ArithmeticError):
        threads.run(work, 0, 10)
    threads.close()


def test_cep_adaptive_damping_ends_where_a_fixed_step_does(rng):
    _, _, p = problem(rng, 2, 1, 150, "probit", shape=(15, 12))
    fixed, adaptive = fit(p, 300, damping=0.5, tol=1e-9), fit(p, 300, damping="adaptive", tol=1e-9)
    assert np.sqrt(np.mean(fixed.state.f**2)) > 0.3
    assert adaptive.n_iter < fixed.n_iter
    assert fixed.converged
    assert adaptive.converged
    np.testing.assert_allclose(adaptive.posterior.Lam, fixed.posterior.Lam, rtol=1e-4, atol=1e-5)


def test_get_method_lists_what_exists():
    with pytest.raises(ValueError, match=r"method must be one of 'cep'.*; got 'vmpx'"):
        get_method("vmpx", get_likelihood("gaussian"))
    assert get_method("cep", get_likelihood("probit")) is METHODS["cep"] is CEP


def test_get_method_names_the_missing_part_and_what_would_do():
    lame = replace(get_likelihood("gaussian"), name="lame", tilted=None)
    with pytest.raises(ValueError, match=r"method 'cep' needs tilted, which the likelihood 'lame' does not have; use"):
        get_method("cep", lame)
