"""How a batch is learned: boldly where it bears that, else as the settings say, and with positive messages last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers.cases import each
from helpers.problems import build, cells, settings_of

from tensorcep import CPClassifier
from tensorcep.core.loop import run
from tensorcep.cp.cep import method as cep
from tensorcep.cp.methods import get_method
from tensorcep.cp.settings import CEP
from tensorcep.cp.stream.adf import learn
from tensorcep.cp.stream.learn import engine_of
from tensorcep.priors.fixed import Prior


def problem_of(shape, n, R, rng, sure=1.0):
    """Labels that contradict each other, in rows whose prior has this precision."""
    prior = Prior([rng.random((m, R)) for m in shape], [sure] * 3)
    return build(cells(rng, shape, n), np.where(rng.random(n) > 0.5, 1.0, -1.0), shape, R, "probit", prior)


def method_of(problem):
    return get_method("cep", problem.likelihood)


def test_a_bold_batch_ends_where_a_damped_one_does_in_fewer_sweeps(rng):
    problem = problem_of((12, 10, 8), 60, 2, rng, sure=4.0)
    settings = settings_of("cep", damping=0.5)
    damped, bold = (learn(method_of(problem), problem, settings, bold=how, max_iter=200, tol=1e-9) for how in (0, 1))
    assert damped.converged
    assert bold.converged
    assert 2 * bold.n_iter < damped.n_iter
    np.testing.assert_allclose(bold.posterior.Lam, damped.posterior.Lam, rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(bold.posterior.eta, damped.posterior.eta, rtol=1e-6, atol=1e-7)


def test_a_batch_in_trouble_is_learned_as_if_nobody_had_been_bold():
    """200 ones that contradict each other in one row: the formula's messages would make its precision indefinite."""
    rng = np.random.default_rng(0)
    problem = problem_of((2, 40, 40), 1500, 4, rng)
    formula = run(method_of(problem), problem, settings_of("cep", damping=0.5, positive=False), max_iter=99, tol=1e-9)
    if not (formula.trace["skipped"].any() or formula.trace["shrunk"].any()):
        pytest.fail("this problem no longer troubles the formula; choose a harder one")
    settings = settings_of("cep", damping=0.5)
    one, two = (learn(method_of(problem), problem, settings, bold=how, max_iter=200, tol=1e-3) for how in (False, True))
    assert one.converged
    assert not one.trace["skipped"].any()
    assert not one.trace["shrunk"].any()
    np.testing.assert_array_equal(one.posterior.eta, two.posterior.eta)


def changes(of_attempts):
    """A step whose sweeps change as much as this says, attempt after attempt, and the damping of the attempts."""
    seen, step = [], cep.CEP.step

    def told(state, problem, options, executor):
        if state.sweeps == 0:
            seen.append(options.damping)
        state, sweep = step(state, problem, options, executor)
        return state, sweep._replace(change=of_attempts[len(seen) - 1][state.sweeps - 1])

    return seen, told


@each(
    ("first", "damping"),
    [
        ([1.0, 0.4, 0.1, 0.01], [0.0]),
        ([1.0, 0.6], [0.0, 0.5]),  # damped sweeps fall as fast
        ([1.0, np.nan], [0.0, 0.5]),
        ([1.0, 0.08, 0.06, 0.04], [0.0]),  # below the tolerance it has ended
    ],
)
def test_a_bold_batch_goes_on_while_its_changes_fall(rng, first, damping):
    problem = problem_of((6, 5, 4), 20, 2, rng, sure=4.0)
    seen, told = changes([first, [1.0, 0.9, 0.05]])
    method, settings = replace(method_of(problem), step=told), settings_of("cep", damping=0.5)
    learn(method, problem, settings, bold=True, max_iter=9, tol=0.07)
    assert seen == damping


@pytest.mark.filterwarnings("ignore")
@each(
    ("method", "bold"),
    [("cep", True), (CEP(damping=0.5), False), (CEP(schedule="parallel"), False), (CEP(order=2), False)],
)
def test_streams_are_bold_where_the_damping_is_left_to_them(rng, method, bold):
    model = CPClassifier(2, method=method, prior="fixed", interactions="cp", random_state=0, max_iter=5)
    coords = cells(rng, (6, 5, 4), 40)
    model.partial_fit(coords, (np.arange(40) % 2).astype(float))
    assert engine_of(model._spec(), model._result).bold is bold


def test_real_values_are_learned_without_attempts(rng):
    prior = Prior([1.0] * 3, [1.0] * 3)
    problem = build(cells(rng, (6, 5, 4), 30), rng.standard_normal(30), (6, 5, 4), 2, "gaussian", prior)
    how = {"max_iter": 30, "tol": 1e-6}
    one, two = (learn(method_of(problem), problem, settings_of("cep"), bold=bold, **how) for bold in (False, True))
    np.testing.assert_array_equal(one.posterior.eta, two.posterior.eta)
