"""How often the true rank of a simulated CP tensor is found: by held-out log score, by ARD, by the lower bound of VMP.

A latent value has standard deviation 1 over cells; --noise lists the standard deviations of the noise. The ranks tried
are those from --below under the true rank to --above over it, which saves time and helps every criterion but ARD.
Criteria: held-out log score (of --score-method with --score-prior, until two ranks in a row are no better), by both
rules; what ARD (cep) leaves of --largest components; the best lower bound of VMP from --starts starts, with the fixed
prior ("bound") or a learned one ("bound-learned"). A row per tensor and criterion holds the rank that it chose; the
rows at the end hold the share of tensors in which that is the true one, exactly and within one, and its mean.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from scripts.lib.common import Row, numbers, parser, report, row, say, words
from tensorcep import CPRegressor, SparseTensor, select_rank, simulate_cp

PATIENCE = 2
# criterion -> prior of the rows
BOUNDS = {"bound": "fixed", "bound-learned": "learned"}
MODEL = {"interactions": "cp", "max_iter": 200}
CRITERIA = ("held-out", "ard", *BOUNDS)


def chosen_ranks(
    tensor: SparseTensor, true: int, seed: int, options: argparse.Namespace
) -> Iterator[tuple[str, int, float]]:
    """Criterion, chosen rank and seconds."""
    ranks = range(max(1, true - options.below), true + options.above + 1)
    begin = time.perf_counter()
    if "held-out" in options.criteria:
        model = CPRegressor(method=options.score_method, prior=options.score_prior, random_state=seed, **MODEL)
        found = select_rank(model, tensor, ranks=ranks, cv=options.cv, patience=PATIENCE, random_state=seed)
        seconds = time.perf_counter() - begin
        yield "one-standard-error", found.rank, seconds
        yield "best-score", found.best_rank, seconds
    if "ard" in options.criteria:
        begin = time.perf_counter()
        pruned = CPRegressor(options.largest, method="cep", prior="ard", random_state=seed, **MODEL).fit(tensor)
        yield "ard", pruned.n_components_, time.perf_counter() - begin
    for name, prior in BOUNDS.items():
        if name in options.criteria:
            begin = time.perf_counter()
            bounds = [best_bound(tensor, rank, prior, options.starts) for rank in ranks]
            yield name, ranks[int(np.argmax(bounds))], time.perf_counter() - begin


def best_bound(tensor: SparseTensor, rank: int, prior: str, starts: int) -> float:
    """The highest lower bound of VMP from several random starts."""
    models = (CPRegressor(rank, method="vmp", prior=prior, random_state=seed, **MODEL) for seed in range(starts))
    return max(model.fit(tensor).lower_bound_ for model in models)


def summary(rows: list[Row]) -> list[Row]:
    """Share of the tensors of each true rank and noise in which each criterion finds the rank, or misses it by one."""
    groups: dict[tuple[str, str, int, float], list[int]] = {}
    for item in rows:
        key = (item["data"], item["criterion"], item["true_rank"], item["noise"])
        groups.setdefault(key, []).append(int(item["value"]))
    result = []
    for (data, criterion, true, noise), values in groups.items():
        off = np.abs(np.array(values) - true)
        where = {"data": data, "criterion": criterion, "true_rank": true, "noise": noise, "tensors": len(values)}
        result.append(row("found", float(np.mean(off == 0)), **where))
        result.append(row("within_one", float(np.mean(off <= 1)), **where))
        result.append(row("mean_rank", float(np.mean(values)), **where))
    return result


def main(arguments: list[str] | None = None) -> None:
    """Run from the command line."""
    p = parser(__doc__, seed=0)
    p.add_argument("--true-ranks", type=numbers, default=[3, 5, 8], help="default: 3,5,8")
    p.add_argument(
        "--noise", type=lambda text: [float(word) for word in text.split(",")], default=[0.25, 0.5, 1.0], metavar="S,S"
    )
    p.add_argument("--criteria", type=words(*CRITERIA), default=list(CRITERIA), help="default: all")
    p.add_argument("--seeds", type=int, default=10, help="tensors of each kind (default: 10)")
    p.add_argument("--shape", type=numbers, default=[60, 50, 40], help="default: 60,50,40")
    p.add_argument("--entries", type=int, default=8000, help="observed entries (default: 8000)")
    p.add_argument("--below", type=int, default=2, help="ranks tried below the true one (default: 2)")
    p.add_argument("--above", type=int, default=3, help="ranks tried above the true one (default: 3)")
    p.add_argument("--largest", type=int, default=12, help="rank that ARD prunes from (default: 12)")
    p.add_argument("--starts", type=int, default=3, help="runs of each lower bound (default: 3)")
    p.add_argument("--cv", type=int, default=3, help="folds of the held-out log score (default: 3)")
    p.add_argument("--score-method", default="vmp", help="inference method of the folds (default: vmp)")
    p.add_argument("--score-prior", default="learned", help="prior of the rows there (default: learned)")
    options = p.parse_args(arguments)
    rows: list[Row] = []
    for seed in range(options.seed, options.seed + options.seeds):
        for true in options.true_ranks:
            for noise in options.noise:
                simulated = simulate_cp(
                    options.shape, true, options.entries, latent_sd=1.0, noise_precision=noise**-2, random_state=seed
                )
                where = {"data": "simulated", "true_rank": true, "noise": noise}
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    warnings.filterwarnings("ignore", "(?s).*rows without training entries")
                    for criterion, rank, seconds in chosen_ranks(simulated.tensor, true, seed, options):
                        rows.append(
                            row("rank", rank, **where, criterion=criterion, tensor_seed=seed, seconds_search=seconds)
                        )
                now = [
                    item
                    for item in rows
                    if (item["tensor_seed"], item["true_rank"], item["noise"]) == (seed, true, noise)
                ]
                chosen = ", ".join(f"{item['criterion']} {item['value']:g}" for item in now)
                say(f"seed {seed}, rank {true}, noise {noise:g}: {chosen}")
    if options.json:
        report(rows + summary(rows), options.json)
    else:
        report(summary(rows), None)


if __name__ == "__main__":
    main()
