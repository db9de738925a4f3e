"""Planted bugs: one line of the package each, of the kind that a refactoring could make, and the tests that must fail.

A fragment that has moved or changed is moved here with it; the bug stays what it is.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """A bug in one line.

    Attributes
    ----------
    name, bug : str
        What it is called, and what is wrong.
    path : str
        The file, from the root of the repository.
    old, new : str
        A fragment of one line, which the file holds once, and what stands in its place.
    tests : str
        Test files or folders that see it, separated by blanks; of a file that is gone, its folder is taken.
    keyword : str
        As pytest's -k takes it, so that a run is short; without a failure all tests there run.
    compiled : bool
        Whether kernels are others with it: constants and functions that they inline count, too.
    tier : str
        "slow" where only tests with that mark see it.
    """

    name: str
    path: str
    old: str
    new: str
    bug: str
    tests: str
    keyword: str = ""
    compiled: bool = False
    tier: str = "quick"


PASSING = (
    Mutant(
        "cep-change-undamped",
        "tensorcep/cp/messages/engine.py",
        "executor, problem.power) / step",
        "executor, problem.power)",
        "A damped sweep tells its own change, so that damping looks like convergence.",
        "tests/cp/cep/test_sweep.py",
        "change",
    ),
    Mutant(
        "cep-guard-mean",
        "tensorcep/cp/messages/engine.py",
        "rows.eta[i] = prior_eta + factor[i] * excess_eta",
        "rows.eta[i] = prior_eta + excess_eta",
        "A row whose messages are halved keeps their whole natural mean.",
        "tests/cp/cep/test_guards.py",
        "shrinks_the_messages",
    ),
    Mutant(
        "cep-expected-spread",
        "tensorcep/cp/cep/update.py",
        "w[at.beta, lane] -= w[at.spread, lane]",
        "w[at.beta, lane] += w[at.spread, lane]",
        "The variance of the conditional mean comes off the new covariance instead of being added to it.",
        "tests/cp/cep/test_moments.py",
        "first_order_equals_the_twin",
        compiled=True,
    ),
    Mutant(
        "cep-damping-of-means",
        "tensorcep/cp/messages/cavities.py",
        "damp(w, (eta, 0), (eta, 0), at.eta, eta.shape[0], at.step)",
        "damp(w, (eta, 0), (eta, 0), at.eta, eta.shape[0], at.site_ok)",
        "The natural means of messages are not damped.",
        "tests/cp/cep/test_sweep.py",
        "test_sweep_equals_the_twin",
        compiled=True,
    ),
    Mutant(
        "ep-power-of-means",
        "tensorcep/ep/sweep.py",
        "dtau, dnu = tau / power - old.tau[i], nu / power - old.nu[i]",
        "dtau, dnu = tau / power - old.tau[i], nu - old.nu[i]",
        "With a power the site of the whole term keeps the natural mean of its part.",
        "tests/ep/test_gaussian.py",
        "power or one_sweep",
        compiled=True,
    ),
)

GIBBS = (
    Mutant(
        "gibbs-chains-alike",
        "tensorcep/core/random.py",
        "return seed, sweep * CHAINS + chain, int(what)",
        "return seed, sweep * CHAINS, int(what)",
        "All chains draw the same random numbers.",
        "tests/cp/gibbs/test_rows.py",
        "streams",
    ),
    Mutant(
        "gibbs-burn-in-kept",
        "tensorcep/cp/gibbs/method.py",
        "since = state.sweeps - options.burn_in",
        "since = state.sweeps - options.burn_in + 1",
        "The last sweep of the burn-in is kept as a draw.",
        "tests/cp/gibbs/test_samplers.py",
        "keep",
    ),
    Mutant(
        "gibbs-row-clamped",
        "tensorcep/cp/gibbs/row_draw.py",
        "rest[q] = target[first - base + q] - w * rest[q]",
        "rest[q] = target[first - base + q] - rest[q]",
        "What clamped columns tell is not weighted by the entry's precision.",
        "tests/cp/gibbs/test_rows.py",
        compiled=True,
    ),
    Mutant(
        "gibbs-judge-weights",
        "tensorcep/cp/gibbs/metropolis.py",
        "gain += told.power[told.entry[begin + lane]] * (value[lane] - before[lane])",
        "gain += value[lane] - before[lane]",
        "Proposed rows are judged as if every entry counted once.",
        "tests/cp/gibbs/test_metropolis.py",
        "conditional",
        compiled=True,
    ),
)

DETERMINISTIC = (
    Mutant(
        "vmp-bound-normaliser",
        "tensorcep/likelihoods/parameters/base.py",
        "return -0.5 * n * math.log(2.0 * math.pi)",
        "return -n * math.log(2.0 * math.pi)",
        "The lower bound has the normaliser of the Gaussian twice.",
        "tests/cp/meanfield/test_vmp.py",
        "plain_twin or evidence",
    ),
    Mutant(
        "vmp-clamped-sign",
        "tensorcep/cp/meanfield/method.py",
        "sum_yz[:, :Q] - offsets_of(",
        "sum_yz[:, :Q] + offsets_of(",
        "The clamped columns' part of the latent value is added to what the rows must tell.",
        "tests/cp/meanfield/test_vmp.py",
        "free or clamped",
    ),
    Mutant(
        "vmp-weights-of-values",
        "tensorcep/cp/meanfield/method.py",
        "y, weight = problem.power * y, problem.power",
        "y, weight = y, problem.power",
        "Weights of entries multiply their precisions and not their values.",
        "tests/cp/estimators/test_sample_weight.py",
        "mean_field",
    ),
    Mutant(
        "laplace-marginal",
        "tensorcep/cp/laplace.py",
        "h /= 1.0 + h * (w[at.V, lane] - w[at.v + k, lane])",
        "h /= 1.0 + h * w[at.V, lane]",
        "The marginal curvature of a row counts the row's own variance.",
        "tests/cp/test_laplace.py",
        "messages_of_the_twin and marginal",
        compiled=True,
    ),
    Mutant(
        "wopt-gradient-weights",
        "tensorcep/cp/wopt.py",
        "value, down = problem.power * value, problem.power.ravel() * down",
        "value, down = problem.power * value, down",
        "The gradient of the weighted loss has no weights.",
        "tests/cp/estimators/test_sample_weight.py",
        "wopt",
    ),
)

LIKELIHOODS = (
    Mutant(
        "gaussian-predictive-variance",
        "tensorcep/likelihoods/gaussian.py",
        "return self.level + m, v + 1.0 / theta",
        "return self.level + m, 0.0 * v + 1.0 / theta",
        "The predictive variance lacks the variance of the latent value.",
        "tests/likelihoods/test_likelihoods.py",
        "gaussian",
    ),
    Mutant(
        "censored-upper-quantile",
        "tensorcep/likelihoods/tobit.py",
        'return check_fraction("q", q) if self.side == LOWER else 1.0 - check_fraction("q", q)',
        'return check_fraction("q", q)',
        "Under an upper limit the lower quantile is the upper one.",
        "tests/likelihoods/test_censored.py",
        "upper",
    ),
    Mutant(
        "counts-quantile-off-by-one",
        "tensorcep/likelihoods/counts.py",
        "betainc(a[:, None], k[part, None] + 1.0, expit(-f))",
        "betainc(a[:, None], k[part, None] + 1e-9, expit(-f))",
        "The distribution function of negative-binomial counts leaves out the count itself.",
        "tests/likelihoods/test_likelihoods.py",
        "negbinomial",
    ),
    Mutant(
        "binomial-variance-of-share",
        "tensorcep/likelihoods/binomial.py",
        "n * n * np.maximum(square - p * p, 0.0)",
        "n * np.maximum(square - p * p, 0.0)",
        "The variance of the share of successes is multiplied by the trials once.",
        "tests/likelihoods/test_binomial.py",
        "predictions",
    ),
    Mutant(
        "ordinal-second-moment",
        "tensorcep/likelihoods/ordinal.py",
        "square += (from_least[j] ** 2 - from_least[j - 1] ** 2) * p",
        "square += (from_least[j] - from_least[j - 1]) ** 2 * p",
        "The second moment of levels sums the squares of their steps.",
        "tests/likelihoods/test_ordinal.py",
        "predicted",
    ),
    Mutant(
        "probit-curvature",
        "tensorcep/likelihoods/binary.py",
        "beta[n] = r * beta[n] / (1.0 + v[n])",
        "beta[n] = r * beta[n] / math.sqrt(1.0 + v[n])",
        "The second derivative of a label's evidence is divided by the standard deviation.",
        "tests/likelihoods/test_tilted.py",
        "probit",
        compiled=True,
    ),
)

PRIORS = (
    Mutant(
        "prior-learned-shift",
        "tensorcep/priors/normal_wishart.py",
        "scatter = scatter + rows * n / (rows + n) * np.outer(average - self.centre, average - self.centre)",
        "scatter = scatter + rows * np.outer(average - self.centre, average - self.centre)",
        "The scatter of the rows counts the shift of their mean as if there were endless rows.",
        "tests/priors/test_learned.py",
        "normal_wishart",
    ),
    Mutant(
        "prior-features-of-rows",
        "tensorcep/priors/features.py",
        "(coo.data, (rows[coo.row], coo.col))",
        "(coo.data, (coo.row, coo.col))",
        "Sparse features go to rows by the order of their lines, not by label.",
        "tests/priors/test_features.py",
        "frame or array",
    ),
    Mutant(
        "prior-series-order",
        "tensorcep/priors/ou_process.py",
        "order = np.lexsort((clock.times[rows], group))",
        "order = np.lexsort((group, clock.times[rows]))",
        "Rows of several groups are in the order of their times alone.",
        "tests/priors/test_deviations.py",
    ),
    Mutant(
        "prior-graph-scale",
        "tensorcep/priors/gmrf.py",
        "log_det[i] = np.sqrt(variance), found.log_det + float(np.log(variance).sum())",
        "log_det[i] = np.sqrt(variance), found.log_det",
        "The determinant of a graph's prior is that before all rows vary alike.",
        "tests/priors/test_graph.py",
        "dense or closed",
    ),
)

HELD_OUT = (
    Mutant(
        "held-out-noise",
        "tensorcep/cp/calibration/holdout.py",
        "noise = np.maximum(2.0 * of_mean - np.sum(",
        "noise = np.maximum(of_mean - np.sum(",
        "The noise that entries left out tell lacks a factor 2.",
        "tests/cp/gibbs/test_held_out.py",
        "what_is_left or little_is_known",
    ),
    Mutant(
        "metrics-calibration-weights",
        "tensorcep/metrics.py",
        "np.average(np.abs(curve.predicted - curve.observed), weights=curve.weight)",
        "np.average(np.abs(curve.predicted - curve.observed))",
        "The calibration error counts bins of few entries as much as others.",
        "tests/test_metrics.py",
    ),
)

STREAMS = (
    Mutant(
        "stream-forgotten-noise",
        "tensorcep/cp/stream/adf.py",
        "GammaNoise(*(p + weight * (q - p) for p, q in",
        "GammaNoise(*(q + weight * (p - q) for p, q in",
        "What a stream forgets of the noise and what it keeps are exchanged.",
        "tests/cp/stream/test_adf.py",
        "forgetting",
    ),
    Mutant(
        "stream-reservoir-draws",
        "tensorcep/cp/stream/reservoir.py",
        "generator.advance(seen)",
        "generator.advance(0)",
        "Which entries a reservoir takes depends on how they come in batches.",
        "tests/cp/stream/test_revisit.py",
        "reservoir",
    ),
    Mutant(
        "stream-revisited-age",
        "tensorcep/cp/stream/reservoir.py",
        "lost = 1.0 - made.keep ** np.maximum(0.0, made.batch.time - chosen.born)",
        "lost = made.keep ** np.maximum(0.0, made.batch.time - chosen.born)",
        "A revisited entry sends the share of its message that its age has taken.",
        "tests/cp/stream/test_revisit.py",
        "conjugate",
    ),
    Mutant(
        "stream-forget-noise",
        "tensorcep/cp/stream/reservoir.py",
        "    noise = noise_without(state.noise, lost)",
        "    noise = noise_without(state.noise, lost)._replace(b=state.noise.b)",
        "Entries that are forgotten leave their squared errors in the noise.",
        "tests/cp/estimators/test_stream_forgetting.py",
    ),
)

FILES = (
    Mutant(
        "read-tns-promise",
        "tensorcep/entries/io/text.py",
        "if self._n_filled > promised or (at_end and self._n_filled < promised):",
        "if self._n_filled > promised:",
        "A truncated file is read although its header promises more entries.",
        "tests/entries",
        "tns or header or truncated or promise",
    ),
    Mutant(
        "read-parquet-resumed",
        "tensorcep/entries/io/chunks.py",
        "left, skip = frame.iloc[skip:], max(skip - len(frame), 0)",
        "left = frame",
        "Reading a parquet file on begins with rows that were read before.",
        "tests/entries/test_io_batches.py",
    ),
    Mutant(
        "labels-permuted",
        "tensorcep/entries/labels.py",
        "place[order] = np.arange(len(found))",
        "place[:] = order",
        "Labels of mixed kinds are given to rows by the inverse of their order.",
        "tests/entries/test_labels.py",
    ),
    Mutant(
        "store-without-cells",
        "tensorcep/cp/estimators/store.py",
        '"own", "stream")',
        '"own", "stream", "cells")',
        "A loaded model has forgotten the cells that it was fitted to.",
        "tests/cp/estimators/test_recommending.py",
        "file or load or save or later or saved",
    ),
    Mutant(
        "store-checksum",
        "tensorcep/core/persist/archive.py",
        "if CHECKSUM in header and header[CHECKSUM] != _checksum(header, arrays):",
        "if CHECKSUM in header and not header[CHECKSUM]:",
        "A file that was changed after it was written is loaded.",
        "tests/core/test_files.py",
    ),
    Mutant(
        "scratch-growing-size",
        "tensorcep/core/arrays.py",
        "self._size += data.nbytes",
        "self._size = data.nbytes",
        "An array that has grown on scratch has the length of its last part.",
        "tests/core/test_scratch.py",
    ),
)

WORKERS = (
    Mutant(
        "workers-rows-of-range",
        "tensorcep/cp/workers/executor.py",
        "sheet.put(i, a - first, own[name])",
        "sheet.put(i, where.first - first, own[name])",
        "All pieces of a range are put where the first one belongs.",
        "tests/cp/workers/test_updates.py",
    ),
    Mutant(
        "workers-stale-rows",
        "tensorcep/cp/workers/row_cache.py",
        "if raw is None or any(raw.names[k] != name for k, name in needed):",
        "if raw is None:",
        "A worker computes with rows of an earlier sweep.",
        "tests/cp/workers/test_store.py",
    ),
)

SHELL = (
    Mutant(
        "shell-exit-code",
        "tensorcep/cli/main.py",
        "            return 1",
        "            return 0",
        "A command that failed ends with the exit code of success.",
        "tests/cli/test_cli.py",
        "usage or error_is_one",
    ),
    Mutant(
        "shell-header-lost",
        "tensorcep/cli/cells.py",
        "header=n == 0",
        "header=n > 0",
        "Predictions as csv begin without the names of their columns.",
        "tests/cli/test_cli.py",
        "predict_is or predict_file",
    ),
)

FAMILIES = (
    Mutant(
        "factors-within-draws",
        "tensorcep/factor_models/results.py",
        "mean, square = mean + value / n, square + (variance + value**2) / n",
        "mean, square = mean + value / n, square + value**2 / n",
        "Predictions over draws lack the variance within each draw.",
        "tests/factor_models/test_predictive_noise.py",
        "draws",
    ),
    Mutant(
        "factors-trace",
        "tensorcep/factor_models/side_information.py",
        "return np.where(i == j, 1.0, 2.0)",
        "return np.where(i == j, 1.0, 1.0)",
        "The variance of a cell counts covariances of components once instead of twice.",
        "tests/factor_models/test_model.py",
        "latent_moments",
    ),
    Mutant(
        "linear-divergence",
        "tensorcep/linear/vb.py",
        "bound - 0.5 * float(np.sum(ratio + shift - 1.0 - np.log(ratio)))",
        "bound - 0.5 * float(np.sum(ratio + shift - 1.0 + np.log(ratio)))",
        "The divergence of the weights from their prior has a log determinant of the wrong sign.",
        "tests/linear/test_methods.py",
        "lower_bound",
    ),
    Mutant(
        "process-gradient-matern",
        "tensorcep/gaussian_process/evidence.py",
        "weight = 3.0 * np.exp(-np.sqrt(3.0) * distance)",
        "weight = np.exp(-np.sqrt(3.0) * distance)",
        "The derivative of a Matern kernel by its length lacks a factor.",
        "tests/gaussian_process/test_engines.py",
        "derivatives",
    ),
)

KERNELS = (
    Mutant(
        "kernel-polya-gamma-rest",
        "tensorcep/kernels/polya_gamma.py",
        "mean = pg_mean(1.0, c) - mean",
        "mean = 0.5 * (pg_mean(1.0, c) - mean)",
        "What the gamma series of a Polya-Gamma draw leaves out comes back by half.",
        "tests/kernels/test_polya_gamma.py",
        "pg_draws_have_exact_mean",
        compiled=True,
    ),
    Mutant(
        "kernel-outer-products-rows",
        "tensorcep/kernels/rank_update.py",
        "for a in range(b + ROWS, R, ROWS):",
        "for a in range(b + ROWS, R - 1, ROWS):",
        "The last row of a sum of outer products is left out at some ranks.",
        "tests/kernels/test_outer.py",
        compiled=True,
    ),
    Mutant(
        "kernel-streams-by-row",
        "tensorcep/core/random.py",
        "key = _mixed((key ^ np.uint64(block)) + _GOLDEN)",
        "key = _mixed(key + _GOLDEN)",
        "All blocks of rows draw the same random numbers.",
        "tests/kernels/test_streams.py",
        "differ",
        compiled=True,
    ),
)

MUTANTS: tuple[Mutant, ...] = (
    *PASSING,
    *GIBBS,
    *DETERMINISTIC,
    *LIKELIHOODS,
    *PRIORS,
    *HELD_OUT,
    *STREAMS,
    *FILES,
    *WORKERS,
    *SHELL,
    *FAMILIES,
    *KERNELS,
)
