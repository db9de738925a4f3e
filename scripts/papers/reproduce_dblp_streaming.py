"""Streaming DBLP: AUC of ADF-CEP and POST against batch size, rank and order of arrival (the CEP paper's figure 5).

The entries are the published ones and as many zeros drawn outside the ones and all test sets (the published zeros are
not available). The model is the paper's: prior N(u, I) with u drawn once from U(0, 1) for every element, no intercept,
no learned prior. "cep" and "vmp" stream; "batch" is CEP on all entries at once, "wopt" a point estimate on all entries.
AUC is the mean over the test sets, each of 200 ones and 1,800 zeros.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np

from scripts.benchmarks.common import Row, grouped, numbers, paper_model, parser, report, row, say, words
from scripts.benchmarks.heldout import Entries, aucs, dblp_entries
from tensorcep import CPClassifier, datasets

STREAMED, ON_ALL = ("cep", "vmp"), {"batch": "cep", "wopt": "wopt"}


def estimator(method: str, rank: int, seed: int, args: Any) -> Any:
    """A classifier of the paper's model; a stream starts at it, without annealing."""
    starting: dict[str, Any] = {"init": "prior", "anneal": 0} if method in ("cep", "vmp") else {}
    how = {"shape": datasets.DBLP_SHAPE, "max_iter": args.sweeps, "n_jobs": args.threads[0], **starting}
    return paper_model(CPClassifier, rank, method=method, random_state=seed, **how)


def mean_auc(model: CPClassifier, tests: list[Entries]) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # rows without training entries
        return float(aucs(tests, model.decision_function(np.concatenate([test.coords for test in tests]))).mean())


def streamed(method: str, rank: int, size: int, order: int, loaded: Any, args: Any) -> list[Row]:
    """Rows of one stream: AUC at some numbers of entries seen, and at the end."""
    coords, y, tests = loaded
    arrive = np.random.default_rng([args.seed, order]).permutation(len(y))
    parts = [arrive[a : a + size] for a in range(0, len(y), size)]
    wanted = {len(parts), *(round(len(parts) * share) for share in np.linspace(0, 1, args.curve + 1)[1:])}
    about = {"data": "dblp", "rank": rank, "method": method, "batch_size": size, "order": order}
    rows: list[Row] = []
    seconds = 0.0

    def learned(model: CPClassifier, scores: dict[str, float]) -> None:
        nonlocal seconds
        seconds += scores["seconds"]
        if model.n_batches_ in wanted:
            seen = int(scores["n_samples_seen"])
            if seen == len(y) or order == 0:
                rows.append(row("auc", mean_auc(model, tests), **about, entries=seen, seconds=seconds))

    model = estimator(method, rank, args.seed, args)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a batch that did not reach the tolerance
        model.stream(((coords[part], y[part]) for part in parts), callback=learned)
    rows.append(row("log_score", float(np.nanmean(model.stream_trace_["log_score"])), **about, entries=len(y)))
    rows.append(row("entries_per_second", len(y) / seconds, **about, entries=len(y), seconds=seconds))
    say(f"{method} rank {rank} batches of {size}, order {order}: AUC {rows[-3]['value']:.4f}, {seconds:.1f} s")
    return rows


def on_all(name: str, rank: int, loaded: Any, args: Any) -> list[Row]:
    """The row of a method that sees all entries at once."""
    coords, y, tests = loaded
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tolerance may not be reached
        model = estimator(ON_ALL[name], rank, args.seed, args).fit(coords, y)
    seconds = time.perf_counter() - begin
    found = mean_auc(model, tests)
    say(f"{name} rank {rank}: AUC {found:.4f}, {seconds:.1f} s")
    return [row("auc", found, data="dblp", rank=rank, method=name, entries=len(y), seconds=seconds)]


def over_orders(rows: list[Row]) -> list[Row]:
    """Mean and standard deviation over the orders of the AUC after the last entry."""
    last = max((item.get("entries", 0) for item in rows), default=0)
    ended = [item for item in rows if item["metric"] == "auc" and item.get("entries") == last and "order" in item]
    result = []
    for (rank, method, size), items in grouped(ended, ("rank", "method", "batch_size")).items():
        values = [item["value"] for item in items]
        about = {"data": "dblp", "rank": rank, "method": method, "batch_size": size, "orders": len(values)}
        result.append(row("auc_mean", float(np.mean(values)), **about))
        if len(values) > 1:
            result.append(row("auc_sd", float(np.std(values, ddof=1)), **about))
    return result


def main(arguments: list[str] | None = None) -> None:
    p = parser(__doc__, ranks="8", methods="cep,vmp", sweeps=50, seed=0, threads="1")
    p.add_argument("--batch-sizes", type=numbers, default="100,500,1000,5000,10000", help="default: %(default)s")
    p.add_argument("--orders", type=int, default=5, help="random orders of the entries (default: %(default)s)")
    p.add_argument("--curve", type=int, default=10, help="points of AUC against entries, first order (default: 10)")
    p.add_argument("--entries", type=int, help="take only so many of the 310,370 entries")
    p.add_argument("--sets", type=int, default=50, help="test sets (default: %(default)s)")
    args = p.parse_args(arguments)
    known = words(*STREAMED, *ON_ALL)
    train, tests = dblp_entries(args.seed, args.entries)
    loaded = *train, tests[: args.sets]
    rows: list[Row] = []
    for method in known(",".join(args.methods)):
        for rank in args.ranks:
            if method in ON_ALL:
                rows += on_all(method, rank, loaded, args)
            else:
                for size in args.batch_sizes:
                    for order in range(args.orders):
                        rows += streamed(method, rank, size, order, loaded, args)
    report([*rows, *over_orders(rows)], args.json)


if __name__ == "__main__":
    main()
