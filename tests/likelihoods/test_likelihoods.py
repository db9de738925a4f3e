"""Coding, derivatives, predictive distributions and sampling of every likelihood."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers.cases import each
from helpers.likelihood_cases import CASES, TESTS_OF_THEIR_OWN
from scipy import stats
from scipy.special import expit, ndtr

from tensorcep.factor_models import sites
from tensorcep.likelihoods import ALIASES, LIKELIHOODS, get_likelihood, names_of, words_of
from tensorcep.likelihoods.counts import mixture_cdf

EVERY = each("name", CASES)
BINARY = each("name", ["probit", "logit"])


def derivatives(name, y, f, theta):
    value, d1, d2 = np.empty_like(f), np.empty_like(f), np.empty_like(f)
    get_likelihood(name).loglik(y, f, np.full_like(f, theta), value, d1, d2)
    return value, d1, d2


def test_every_likelihood_has_a_case_or_tests_of_its_own():
    """A new likelihood has its case in `helpers/likelihood_cases.py`: the tests of all likelihoods then run on it."""
    assert set(LIKELIHOODS) == {*CASES, *TESTS_OF_THEIR_OWN}
    here = Path(__file__).parent
    assert all(f'"{name}"' in (here / file).read_text() or name in file for name, file in TESTS_OF_THEIR_OWN.items())


def test_words_of_likelihoods_are_one_table_for_all_families():
    of_matrices = sites.LIKELIHOODS
    assert get_likelihood("bernoulli") is get_likelihood("logit")
    assert [get_likelihood(name).name for name in of_matrices] == [ALIASES.get(name, name) for name in of_matrices]
    assert words_of("values", "counts") == ("gaussian", "counts", *names_of("counts"))
    assert words_of("levels") == ("ordinal",)


def test_get_likelihood_lists_what_exists():
    assert get_likelihood("probit").name == "probit"
    listed = ", ".join(map(repr, LIKELIHOODS))
    with pytest.raises(ValueError, match=f"{listed}; got 'cauchy'"):
        get_likelihood("cauchy")


@EVERY
def test_loglik_equals_scipy(name, rng):
    f = np.concatenate([3 * rng.normal(size=200), [-12.0, -5.0, 0.0, 5.0]])
    y = CASES[name].observed(rng, f.size)
    wanted = CASES[name].log_density(y, f, 2.5)
    np.testing.assert_allclose(derivatives(name, y, f, 2.5)[0], wanted, rtol=1e-12, atol=1e-14)


@EVERY
def test_loglik_derivatives_equal_differences(name, rng):
    f = 1.5 * rng.normal(size=200)
    y = CASES[name].observed(rng, f.size)
    h = 1e-5
    _, d1, d2 = derivatives(name, y, f, 2.5)
    up, down = derivatives(name, y, f + h, 2.5), derivatives(name, y, f - h, 2.5)
    np.testing.assert_allclose((up[0] - down[0]) / (2 * h), d1, atol=1e-7)
    np.testing.assert_allclose((up[1] - down[1]) / (2 * h), d2, atol=1e-7)


def test_loglik_labels_stay_exact_in_the_tails():
    f = np.array([-600.0, -40.0, 40.0])
    value, d1, d2 = derivatives("logit", np.ones(3), f, 1.0)
    np.testing.assert_allclose(value, [-600.0, -40.0, -np.exp(-40.0)], rtol=1e-15)
    np.testing.assert_allclose(d1, expit(-f), rtol=1e-15)
    np.testing.assert_allclose(d2, -expit(f) * expit(-f), rtol=1e-15)
    value, _, d2 = derivatives("probit", np.ones(3), f, 1.0)
    np.testing.assert_allclose(value, stats.norm.logcdf(f), rtol=1e-13, atol=1e-300)
    np.testing.assert_allclose(d2[:2], -1.0 + 1.0 / f[:2] ** 2, rtol=6.0 / 40.0**4)  # 1 - 1/x^2 + 6/x^4 - ...


def test_loglik_poisson_is_exact_for_large_counts():
    y, f = np.array([15.0, 16.0, 1e5, 3e9]), np.log([15.5, 16.0, 1e5 + 10, 3e9])
    np.testing.assert_allclose(derivatives("poisson", y, f, 1.0)[0], stats.poisson.logpmf(y, np.exp(f)), rtol=1e-6)
    wanted = -0.5 * np.log(2 * np.pi * y) - 1 / (12 * y) + 1 / (360 * y**3)  # Stirling, at f = log y
    np.testing.assert_allclose(derivatives("poisson", y, np.log(y), 1.0)[0], wanted, rtol=1e-9)


@BINARY
def test_check_y_codes_labels(name):
    check = get_likelihood(name).check_y
    for y in ([0, 1, 1], [False, True, True], np.array([0.0, 1.0, 1.0], dtype=np.float32)):
        coded = check(y)
        assert coded.dtype == np.float64
        np.testing.assert_array_equal(coded, [-1.0, 1.0, 1.0])


@BINARY
@each(("y", "value"), [([0, 1, 2], "2 at entry 2"), ([-1, 1], "-1 at entry 0"), ([0.5], "0.5")])
def test_check_y_refuses_other_labels(name, y, value):
    with pytest.raises(ValueError, match=f"labels 0 and 1; got {value}"):
        get_likelihood(name).check_y(y)


@each(("y", "value"), [([3, -1], "-1 at entry 1"), ([0, 1, 2.5], "2.5 at entry 2")])
def test_check_y_refuses_what_is_no_count(y, value):
    with pytest.raises(ValueError, match=f"counts, integers >= 0; got {value}"):
        get_likelihood("poisson").check_y(y)


@EVERY
def test_check_y_refuses_nan_text_and_tables(name):
    check = get_likelihood(name).check_y
    with pytest.raises(ValueError, match="finite; got nan at entry 1"):
        check([0.0, np.nan])
    with pytest.raises(TypeError, match="real numbers"):
        check(["yes", "no"])
    with pytest.raises(ValueError, match="one-dimensional"):
        check(np.zeros((2, 2)))


def test_check_y_keeps_real_values_and_counts():
    np.testing.assert_array_equal(get_likelihood("gaussian").check_y([1, -2.5]), [1.0, -2.5])
    np.testing.assert_array_equal(get_likelihood("poisson").check_y([0, 7]), [0.0, 7.0])


@EVERY
def test_predict_equals_monte_carlo(name, rng):
    record, n = get_likelihood(name), 200_000
    for m, v in ((0.3, 0.4), (-1.2, 0.1)):
        draws = record.sample(rng, m + np.sqrt(v) * rng.standard_normal(n), np.full(n, 2.0))
        mean, variance = (float(part[0]) for part in record.predict(m, v, 2.0))
        assert abs(draws.mean() - mean) < 6 * draws.std() / np.sqrt(n)
        squares = (draws - mean) ** 2
        assert abs(squares.mean() - variance) < 6 * squares.std() / np.sqrt(n)


@EVERY
def test_sample_has_the_moments_of_the_likelihood(name, rng):
    record, n, f, theta = get_likelihood(name), 100_000, 0.7, 4.0
    draws = record.sample(rng, np.full(n, f), np.full(n, theta))
    mean, variance = CASES[name].moments(f, theta)
    assert abs(draws.mean() - mean) < 6 * np.sqrt(variance / n)
    squares = (draws - mean) ** 2
    assert abs(squares.mean() - variance) < 6 * squares.std() / np.sqrt(n) + 1e-3 * variance
    assert draws.dtype == np.float64
    record.check_y(draws)


@EVERY
def test_sample_depends_only_on_the_generator(name):
    record, f = get_likelihood(name), np.linspace(-1, 1, 50)
    first, second, other = (record.sample(np.random.default_rng(seed), f, np.ones(50)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(first, other)


def test_sample_poisson_draws_huge_rates(rng):
    draws = get_likelihood("poisson").sample(rng, np.array([50.0, 0.0, 800.0]), np.ones(3))
    assert abs(draws[0] / np.exp(50.0) - 1) < 1e-9
    assert draws[2] == np.inf


def test_predict_label_probabilities_sum_to_one():
    m, v = np.array([-38.0, -3.0, 0.0, 9.0]), np.array([0.2, 5.0, 1.0, 30.0])
    for name in ("probit", "logit"):
        p, variance = get_likelihood(name).predict(m, v, 1.0)
        mirrored = get_likelihood(name).predict(-m, v, 1.0)[0]
        np.testing.assert_allclose(p + mirrored, 1.0, rtol=1e-14)
        np.testing.assert_allclose(variance, p * mirrored, rtol=1e-13)


def test_predict_poisson_says_inf_beyond_the_range_of_floats():
    mean, variance = get_likelihood("poisson").predict([2.0, 1.0, 700.0, 800.0], [0.0, 0.5, 0.0, 1.0], 1.0)
    np.testing.assert_allclose(mean[:3], np.exp([2.0, 1.25, 700.0]), rtol=1e-14)
    np.testing.assert_allclose(variance[:3], [np.exp(2.0), np.exp(1.25) + np.expm1(0.5) * np.exp(2.5), np.exp(700.0)])
    assert mean[3] == variance[3] == np.inf


@BINARY
def test_quantile_of_labels_follows_the_probability(name):
    record = get_likelihood(name)
    p = float(record.predict(0.4, 0.5, 1.0)[0][0])
    np.testing.assert_array_equal(
        [record.quantile(q, 0.4, 0.5, 1.0)[0] for q in (1e-9, 1 - p - 1e-9, 1 - p + 1e-9, 1 - 1e-9)], [0, 0, 1, 1]
    )


def test_quantile_gaussian_inverts_the_cdf(rng):
    m, v, theta = rng.normal(size=20), rng.exponential(size=20), 0.7
    y = get_likelihood("gaussian").quantile(0.13, m, v, theta)
    np.testing.assert_allclose(stats.norm.cdf(y, m, np.sqrt(v + 1 / theta)), 0.13, rtol=1e-12)


@each("q", [1e-6, 0.05, 0.5, 0.95, 0.99999])
def test_quantile_poisson_is_the_first_count_that_reaches_q(q):
    m, v = (grid.ravel() for grid in np.meshgrid([-6.0, -1.0, 0.0, 2.0, 6.0, 14.0], [0.0, 1e-4, 0.3, 2.0, 15.0]))
    k = get_likelihood("poisson").quantile(q, m, v, 1.0)
    assert (k == np.floor(k)).all()
    finite = k < 2**52
    assert (mixture_cdf(k[finite], m[finite], v[finite]) >= q).all()
    positive = finite & (k > 0)
    assert (mixture_cdf(k[positive] - 1, m[positive], v[positive]) < q).all()


def test_quantile_poisson_handles_empty_and_overflowing_input():
    quantile = get_likelihood("poisson").quantile
    assert quantile(0.5, np.empty(0), np.empty(0), np.empty(0)).shape == (0,)
    large = quantile(0.975, [60.0, 900.0], [0.01, 1.0], 1.0)
    assert abs(np.log(large[0]) - (60.0 + 0.1 * stats.norm.ppf(0.975))) < 1e-9
    assert large[1] == np.inf


@each("q", [1e-6, 0.05, 0.5, 0.95, 0.999])
def test_quantile_negbinomial_is_the_first_count_that_reaches_q(q):
    grid = np.meshgrid([-6.0, 0.0, 2.0], [0.0, 1e-4, 0.3, 2.0], [0.4, 3.0, 200.0])
    m, v, r = (axis.ravel() for axis in grid)
    k = get_likelihood("negbinomial").quantile(q, m, v, r)
    cdf, rows = get_likelihood("negbinomial").cdf(m, v, r), np.arange(m.size)
    assert (cdf(k, rows) >= q).all()
    positive = rows[k > 0]
    assert (cdf(k[positive] - 1, positive) < q).all()
    exact = stats.nbinom(r[v == 0.0], expit(-m[v == 0.0]))  # its ppf was off by one before SciPy 1.12
    assert (exact.cdf(k[v == 0.0]) >= q - 1e-12).all()
    assert (exact.cdf(k[v == 0.0] - 1) < q + 1e-12).all()  # at r = 3 and one half a sum is q itself


@each(("m", "v", "r"), [(0.5, 0.3, 0.7), (-2.0, 4.0, 3.0), (3.0, 1e-4, 12.0), (1.0, 0.0, 2.5)])
def test_cdf_negbinomial_is_the_running_sum_of_the_masses(m, v, r):
    k = np.arange(60.0)
    masses = np.exp(get_likelihood("negbinomial").logpdf(k, m, v, r))
    found = get_likelihood("negbinomial").cdf(np.full(60, m), np.full(60, v), np.full(60, r))(k, np.arange(60))
    np.testing.assert_allclose(found, np.cumsum(masses), rtol=1e-8)


@EVERY
@each("q", [0.0, 1.0, -0.1, np.nan])
def test_quantile_refuses_q_outside_the_open_unit_interval(name, q):
    with pytest.raises(ValueError, match="q must be a number in"):
        get_likelihood(name).quantile(q, 0.0, 1.0, 1.0)


@each(("m", "v"), [(0.5, 0.3), (-2.0, 4.0), (3.0, 1e-4), (1.0, 0.0), (-8.0, 30.0)])
def test_mixture_cdf_is_the_running_sum_of_the_masses(m, v):
    k = np.arange(60.0)
    masses = np.exp(get_likelihood("poisson").logpdf(k, m, v, 1.0))
    found = mixture_cdf(k, np.full(60, m), np.full(60, v))
    np.testing.assert_allclose(found, np.cumsum(masses), rtol=1e-12)


@each("k", [0.0, 7.0, 8.0, 900.0])
def test_mixture_cdf_does_not_depend_on_which_variable_is_integrated(k):
    v = (1 + np.array([-1e-9, 1e-9])) / (k + 1)  # either side of the switch
    below, above = mixture_cdf(np.full(2, k), np.full(2, np.log(k + 1.2)), v)
    assert abs(below - above) < 1e-8 * below


@EVERY
def test_logpdf_integrates_to_one(name):
    assert abs(CASES[name].total(get_likelihood(name), 0.4, 1.3, 2.0) - 1) < 1e-9


def test_logpdf_leaves_its_arguments_alone():
    m = np.linspace(-1, 1, 5)
    m.setflags(write=False)
    for name in LIKELIHOODS:
        get_likelihood(name).logpdf(np.ones(5, dtype=int), m, 0.3, 1.0)
    np.testing.assert_array_equal(m, np.linspace(-1, 1, 5))


def test_quantile_of_a_mixture_of_normals_of_unlike_widths(rng):
    """Newton's steps alone go back and forth between the flat parts of such mixtures, at one in some thousands."""
    for q in (0.001, 0.05, 0.25, 0.5, 0.95):
        for parts in (2, 5, 30):
            m = rng.normal(size=(parts, 2000)) * 10.0 ** rng.uniform(-2.0, 2.0, 2000)
            sd = 10.0 ** rng.uniform(-3.0, 0.5, (parts, 2000))
            x = get_likelihood("gaussian").mixture_quantile(q, m, 0.5 * sd**2, 2.0 / sd**2)
            below, above = (ndtr((x + side * sd.min(axis=0) - m) / sd).mean(axis=0) for side in (-0.001, 0.001))
            assert (below <= q + 1e-15).all()
            assert (above >= q - 1e-15).all()


@pytest.mark.parametrize("name", ["poisson", "negbinomial"])
def test_quantile_of_a_mixture_of_counts_is_the_first_that_reaches_q(rng, name):
    record = get_likelihood(name)
    m, v, theta = rng.normal(1.0, 1.0, (3, 5)), rng.uniform(0.0, 0.5, (3, 5)), np.full((3, 5), 2.0)
    v[:, 0] = 0.0  # draws do not vary
    every = np.arange(5000.0)
    for q in (0.05, 0.5, 0.95):
        found = record.mixture_quantile(q, m, v, theta)
        for n in range(5):
            mass = [np.exp(record.logpdf(every, m[c, n], v[c, n], theta[c, n])) for c in range(3)]
            assert found[n] == np.argmax(np.cumsum(np.mean(mass, axis=0)) >= q)
