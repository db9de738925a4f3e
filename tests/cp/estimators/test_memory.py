"""The memory of a fit: planned from sizes, kept within a budget by "auto", refused where the machine has less."""

import json
import subprocess
import sys

import numpy as np
import pytest
from helpers.cases import each
from helpers.short import CUT_SHORT

import tensorcep as tc
from tensorcep.cp.plan import memory, plan
from tensorcep.cp.plan.auto import choose, with_numbers
from tensorcep.cp.settings import size_of
from tensorcep.priors.base import per_row
from tensorcep.priors.fixed import Prior, natural_lines, natural_prior


def planned(n_entries, shape, model=None, **params):
    """What is chosen for so many entries, with numbers for all settings, and its bytes."""
    chosen = choose((model or tc.CPRegressor(**params))._spec(), n_entries, shape, False)
    size = size_of(n_entries, shape, chosen.parts)
    settings = with_numbers(
        chosen.settings, "gaussian", True, chosen.max_iter, memory.room_for_draws(chosen.settings, size)
    )
    return chosen, settings, memory.peak(settings, size, chosen.max_iter).total


def test_auto_falls_back_step_by_step_as_rows_grow():
    steps = []
    for n_rows in np.geomspace(1_000, 10**7, 60).astype(int):
        chosen, settings, total = planned(10**6, (int(n_rows), int(n_rows) // 2, int(n_rows) // 4))
        name = settings.dtype if chosen.method == "gibbs" else chosen.method
        name = "fewer draws" if name == "float64" and settings.thin > 1 else name
        steps += [name] if not steps or steps[-1] != name else []
        assert total <= memory.budget(10**6) or settings.get_params().get("messages") == "averaged"
    assert steps == ["float64", "fewer draws", "float32", "vmp", "cep"]


def test_auto_takes_fewer_columns_before_another_method():
    large, larger = planned(10**6, (40_000, 30_000, 20_000)), planned(10**6, (60_000, 50_000, 40_000))
    assert [found[0].method for found in (large, larger)] == ["gibbs", "gibbs"]
    assert larger[0].rank < large[0].rank <= 11
    assert planned(10**6, (60_000, 50_000, 40_000), rank=6)[0].rank == 6


@each(("n", "shape", "most"), [(10**5, (30_000, 15_000, 5_000), 0.9e9), (10**7, (20_000, 10_000, 5_000), 12e9)])
@each("model", [tc.CPRegressor(), tc.CPClassifier(), tc.CPCountRegressor()])
def test_default_fits_of_many_rows_or_entries_keep_within_their_budget(n, shape, most, model):
    assert planned(n, shape, model)[2] <= memory.budget(n) <= most


def test_small_fits_have_all_their_draws_in_double_precision():
    chosen, settings, _ = planned(20_000, (300, 200, 100))
    assert (chosen.method, settings.dtype, settings.thin) == ("gibbs", "float64", 2)


def test_a_named_method_keeps_its_rank_and_its_dtype():
    shape = (10**6, 10**6, 10**6)
    assert planned(10**6, shape, method="cep", rank=20)[:2][0].rank == 20
    assert planned(10**6, shape, method=tc.Gibbs(dtype="float64"))[1].dtype == "float64"


REFUSED = [
    ({"rank": 10**6}, "set a lower rank"),
    ({"method": "cep", "rank": 8}, "CEP(messages='averaged')"),
    ({"method": tc.Gibbs(thin=1), "rank": 8}, "a larger thin, or dtype='float32'"),
]


@each(("params", "advice"), REFUSED)
def test_fits_beyond_the_memory_of_the_machine_are_refused_before_work(rng, monkeypatch, params, advice):
    monkeypatch.setattr(memory, "memory_of_machine", lambda: 10**6)
    X = np.stack([rng.integers(0, 20, 300) for _ in range(3)], axis=1)
    model = tc.CPRegressor(shape=(20, 20, 20), **params)
    with pytest.raises(ValueError, match=r"takes about .* GB, and this machine has 0.001 GB") as caught:
        model.fit(X, rng.standard_normal(300))
    assert advice in str(caught.value)
    assert not hasattr(model, "posterior_")


def test_what_is_chosen_does_not_depend_on_the_machine(monkeypatch):
    before = planned(10**6, (30_000, 15_000, 5_000))
    monkeypatch.setattr(memory, "memory_of_machine", lambda: 10**6)
    assert planned(10**6, (30_000, 15_000, 5_000)) == before


def small_data(rng):
    shape = (12, 9, 7)
    X = np.stack([rng.integers(0, n, 400) for n in shape], axis=1)
    u = [rng.standard_normal(n) for n in shape]
    return X, u[0][X[:, 0]] * u[1][X[:, 1]] * u[2][X[:, 2]] + 0.1 * rng.standard_normal(400), shape


def test_float32_draws_predict_as_float64_ones(rng, tmp_path):
    X, y, shape = small_data(rng)
    exact, short = (
        tc.CPRegressor(2, method=tc.Gibbs(dtype=dtype), max_iter=200, shape=shape, random_state=1).fit(X, y)
        for dtype in ("float64", "float32")
    )
    assert short.posterior_.rows.dtype == short._result.belief.mean.dtype == np.float32
    np.testing.assert_allclose(short.diagnostics_.r_hat, exact.diagnostics_.r_hat, rtol=1e-3)
    np.testing.assert_allclose(short.predict(X), exact.predict(X), rtol=1e-5, atol=1e-5)
    for mine, theirs in zip(short.factors_, exact.factors_, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=1e-4)
    short.save(tmp_path / "model.npz")
    np.testing.assert_allclose(tc.load(tmp_path / "model.npz").predict(X), short.predict(X), rtol=1e-6)


@CUT_SHORT
@each("prior", ["learned", "fixed"])
def test_draws_are_stored_once(rng, prior):
    X, y, shape = small_data(rng)
    model = tc.CPRegressor(2, method="gibbs", prior=prior, max_iter=10, shape=shape, random_state=1).fit(X, y)
    assert np.shares_memory(model.posterior_.rows, model._result.belief.mean)


@CUT_SHORT
@each("prior", ["fixed", "learned", "ard"])
@each(
    "method", ["vmp", "cep", "laplace", "gibbs", tc.CEP(messages="averaged"), tc.CEP(positive=False, order=2), "wopt"]
)
def test_one_line_of_the_prior_per_mode_is_as_good_as_one_per_row(rng, monkeypatch, method, prior):
    if method == "wopt" and prior != "fixed":
        pytest.skip("wopt learns no prior")
    X, y, _ = small_data(rng)
    found = []
    for lines in (natural_lines, natural_prior):
        monkeypatch.setattr(plan, "natural_lines", lines)
        for interactions in ("cp", "main+cp") if prior == "fixed" else ("main+cp",):
            model = tc.CPRegressor(2, method=method, prior=prior, interactions=interactions, max_iter=6, tol=1.0)
            model.set_params(shape=(13, 9, 7), random_state=2)
            found.append(model.fit(X, y).predict(X))
    np.testing.assert_array_equal(*np.split(np.array(found), 2))


def test_natural_lines_are_the_natural_parameters_of_every_row(rng):
    shape, R = (4, 3), 2
    full = [np.eye(R) + 0.1, np.array([[2.0, 0.3], [0.3, 1.0]])]
    each = [np.stack([matrix * (1 + i) for i in range(n)]) for n, matrix in zip(shape, full, strict=True)]
    means = [rng.standard_normal((n, R)) for n in shape]
    for prior, lines in [
        (Prior([0.5, 1.0], [2.0, np.array([1.0, 3.0])]), (2, 2)),
        (Prior([rng.standard_normal(R), 0.0], full), (2, 2)),
        (Prior(means, full), (2, 7)),
        (Prior(means, each), (7, 7)),
    ]:
        found = natural_lines(prior, shape, R)
        assert tuple(len(part) for part in found) == lines
        for mine, theirs in zip(found, natural_prior(prior, shape, R), strict=True):
            np.testing.assert_array_equal(per_row(mine, shape), theirs)


MEASURED = """
import json, sys
import numpy as np
import tensorcep as tc
from tensorcep.cp.plan import memory, plan

shape, params = {shape}, dict({params})
def entries(n, shape):
    rng = np.random.default_rng(0)
    X = np.stack([rng.integers(0, m, n) for m in shape], axis=1)
    u = [rng.normal(size=(m, 2)) for m in shape]
    return X, np.prod([u[k][X[:, k]] for k in range(3)], axis=0).sum(1) + 0.3 * rng.normal(size=n)
def status(name):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(name))
X, y = entries(12_000, (60, 50, 40))
tc.CPRegressor(shape=(60, 50, 40), random_state=0, **params).fit(X, y)  # code compiled for large data is no part of it
X, y = entries({n}, shape)
planned, check = [], plan.check_memory
plan.check_memory = lambda *record: planned.append(memory.peak(*record).total) or check(*record)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
tc.CPRegressor(shape=shape, random_state=0, **params).fit(X, y)
print(json.dumps([planned[0], status("VmHWM") - before]))
"""
ENGINES = [
    "method='vmp', rank=12, max_iter=12",
    "method=tc.CEP(n_ensemble=1), rank=8, max_iter=8",
    "method=tc.CEP(messages='averaged', n_ensemble=1), rank=8, max_iter=6",
    "method=tc.Gibbs(weights='equal', n_chains=3, burn_in=4), rank=6, max_iter=14",
]


def measured(params, n=50_000, shape=(15_000, 8_000, 3_000)):
    """Bytes that were planned, and those that a fit of n entries took at its peak, in a process of its own."""
    code = MEASURED.format(n=n, shape=shape, params=params)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("params", ENGINES)
def test_fits_take_the_bytes_that_were_planned(params):
    planned_bytes, found = measured(params)
    assert 0.8 * found < planned_bytes < 1.25 * found


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_default_fit_of_fifty_thousand_rows_takes_less_than_a_gigabyte():
    planned_bytes, found = measured("", 100_000, (30_000, 15_000, 5_000))
    assert found < planned_bytes * 1.1 < 1e9
