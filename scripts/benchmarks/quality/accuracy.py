"""How accurate and how well calibrated the estimators are on held-out entries of Alog, Enron and DBLP.

    python -m scripts.benchmarks.quality.accuracy --methods default,cep,gibbs,smurff-default

"default" is the bare estimator: nothing but the shape and the seed is given to it, whatever the other options say. The
other methods take --ranks, --priors, --interactions, --ensembles and --sweeps, and otherwise the estimator's own
defaults; those of "paper" are CEP, the settings of its paper, and rank 8. "all" is every method of ours that can serve.
What a method cannot do is a row with the reason. "smurff-default" and "myfm-default" are these peers with their
defaults, "smurff" and "myfm" with settings that do well on each data set, of the ranks asked for (CHOSEN). With --inner
a fifth of the training entries is held out and scored instead of the test entries: settings are chosen that way, and
no test entry takes part in a choice.

Alog is scored by RMSE, CRPS, mean log predictive density and coverage of 90 % intervals; Enron and DBLP by AUC (on
DBLP the mean over the test sets), log loss and Brier score; `scripts.benchmarks.heldout` says more. A small fit before
the first one keeps compilation out of the times.
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from scripts.benchmarks import common, heldout
from scripts.benchmarks.common import Row, parser, row, say
from scripts.benchmarks.heldout import LABELLED, SHAPES, Split, inner, splits
from scripts.benchmarks.peers import ENVIRONMENT, SAMPLERS, PeerSetting, prepare, sample
from tensorcep import CPClassifier, CPRegressor
from tensorcep.cp.methods import METHODS
from tensorcep.likelihoods import get_likelihood
from tensorcep.metrics import rmse

LIKELIHOODS = {True: ("probit", "logit"), False: ("gaussian",)}
PEER_NAMES = tuple(f"{peer}{which}" for peer in SAMPLERS for which in ("", "-default"))


class Setting(NamedTuple):
    """A method, and what it is given; None is the estimator's own."""

    method: str
    rank: int | None = None
    prior: str | None = None
    interactions: str | None = None
    ensemble: int | None = None


DEFAULTS = {"smurff": PeerSetting(), "myfm": PeerSetting(rank=10)}  # the rank of myFM's own examples
CHOSEN = {
    ("smurff", "alog"): [
        *(PeerSetting(rank, 180, 80, 1.0) for rank in (10, 15, 20)),
        *(PeerSetting(rank, 230, 80, 1.0) for rank in (30, 50)),
    ],
    ("smurff", "enron"): [PeerSetting(5, 450, 150)],
    ("smurff", "dblp"): [PeerSetting(rank, 200, 100) for rank in (8, 32)],
    ("myfm", "alog"): [PeerSetting(rank, 600, 300, grouped=True) for rank in (3, 5, 10)],
    ("myfm", "enron"): [PeerSetting(rank, 1000, 500, grouped=True) for rank in (3, 5, 10)],
    ("myfm", "dblp"): [PeerSetting(8, 200, 100, grouped=True)],
}


def measure_peer(python: Path, name: str, split: Split, setting: PeerSetting, seed: int, held_out: bool) -> list[Row]:
    """Fit one split by a peer and score it; times are of the fit, during which SMURFF predicts the test entries."""
    peer, labels = name.removesuffix("-default"), split.data in LABELLED
    found = sample(python, peer, split, setting, labels=labels, seed=seed)
    noise = None if labels or peer == "myfm" else f"precision {setting.precision or 5.0}"
    about: dict[str, Any] = {"data": split.data, "fold": split.fold, "method": name, "rank": setting.rank, "seed": seed}
    about |= {"noise": noise} | ({"inner": 1} if held_out else {})
    mean = found["predicted"]
    scored = heldout.label_scores(split, mean) if labels else {"rmse": rmse(split.held.y, mean)}
    if "observations" in found:
        scored["log_score"] = float(found["log_density"].mean())
        draws = found["observations"]
        scored |= heldout.draw_scores(split, draws, heldout.probability_below(split.held.y, draws))
    scored |= {"seconds_fit": float(found["seconds"]), "cpu_seconds_fit": float(found["cpu_seconds"])}
    scored["sweeps_done"] = len(found["sweep_seconds"])
    said = ", ".join(f"{metric} {value:.4g}" for metric, value in scored.items())
    say(f"{split.data} fold {split.fold} {name} rank {setting.rank} seed {seed}: {said}")
    return [row(metric, value, **about) for metric, value in scored.items()]


def likelihood_for(name: str, labelled: bool) -> str | None:
    """The first likelihood for such data that the method can use, or None."""
    method = METHODS["cep" if name == "paper" else name]
    return next((name for name in LIKELIHOODS[labelled] if not method.lacks(get_likelihood(name))), None)


def estimator(split: Split, setting: Setting, seed: int, sweeps: int | None) -> Any:
    chosen: dict[str, Any] = {"random_state": seed, "shape": split.shape}
    labelled = split.data in LABELLED
    if setting.method not in ("default", "paper"):
        chosen["method"] = setting.method
    if setting.method != "default":
        if labelled:
            chosen["link"] = likelihood_for(setting.method, labelled)
        given = {"rank": setting.rank, "prior": setting.prior, "n_ensemble": setting.ensemble, "max_iter": sweeps}
        chosen |= {name: value for name, value in given.items() if value is not None}
        if setting.interactions is not None:  # a word, or ranks such as main=1:pair=3:cp=3
            ranks = dict(item.split("=") for item in setting.interactions.split(":") if "=" in item)
            chosen["interactions"] = {name: int(n) for name, n in ranks.items()} or setting.interactions
    cls = CPClassifier if labelled else CPRegressor
    if setting.method == "paper":
        return common.paper_model(cls, **chosen)
    return cls(**common.with_settings(cls, chosen))


def described(model: Any, setting: Setting) -> dict[str, Any]:
    """The columns that say what is fitted; once it is, with what the estimator chose itself."""
    given = model.get_params()
    chosen = ("method", "link", "rank", "prior", "interactions")
    given |= {name: getattr(model, f"{name}_", given[name]) for name in chosen if name in given}
    parts = given["interactions"]
    given["interactions"] = ":".join(f"{k}={n}" for k, n in parts.items()) if isinstance(parts, dict) else parts
    found = {"method": setting.method, "fitted_by": given["method"]}
    found["ensemble"] = getattr(model.method, "n_ensemble", "auto")
    return found | {name: given.get(name) for name in chosen[1:]}


def measure(split: Split, setting: Setting, seed: int, options: argparse.Namespace) -> list[Row]:
    """Fit one split and score it; a row with the reason where the setting is refused."""
    name = setting.method
    if name != "default" and likelihood_for(name, split.data in LABELLED) is None:
        why = f"method {name!r} serves no likelihood of these data"
        return [row("skipped", None, data=split.data, method=name, skipped=why)]
    model = estimator(split, setting, seed, options.sweeps)
    about: dict[str, Any] = {"data": split.data, "fold": split.fold, **described(model, setting), "seed": seed}
    about |= {"inner": 1} if options.inner else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tolerance may not be reached; rows without training entries
        try:
            heldout.warm_up(model, split)
        except ValueError as refused:
            say(f"{split.data} {name}: {refused}")
            return [row("skipped", None, **about, skipped=str(refused))]
        begin, cpu = time.perf_counter(), time.process_time()
        model.fit(*split.train)
        seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
        about |= described(model, setting)
        label = " ".join([name, *(str(item) for item in setting[1:] if item is not None)])
        found = heldout.model_scores(model, split)
    found |= {"seconds_fit": seconds, "cpu_seconds_fit": cpu, "sweeps_done": model.n_iter_}
    found |= {"updates_skipped": model.trace_["skipped"].sum()} if "skipped" in model.trace_ else {}
    say(f"{split.data} fold {split.fold} {label} seed {seed}: " + ", ".join(f"{k} {v:.4g}" for k, v in found.items()))
    return [row(metric, value, **about) for metric, value in found.items()]


def settings(name: str, options: argparse.Namespace) -> list[Setting]:
    if name == "default":
        return [Setting(name)]
    given = (options.ranks, options.priors, options.interactions, options.ensembles)
    return [Setting(name, *choice) for choice in itertools.product(*(some or [None] for some in given))]


def measured(data: str, names: list[str], options: argparse.Namespace) -> list[Row]:
    found = splits(data, options.folds, sets=options.sets, size=options.entries)
    found = [inner(split) for split in found] if options.inner else found
    fits = list(itertools.product(found, range(options.seed, options.seed + options.seeds)))
    rows: list[Row] = []
    for name in names:
        if name in PEER_NAMES:
            python = prepare(options.environment, SAMPLERS)
            some = [at for at in CHOSEN.get((name, data), []) if options.ranks is None or at.rank in options.ranks]
            for chosen in some if name in SAMPLERS else [DEFAULTS[name.removesuffix("-default")]]:
                for split, seed in fits:
                    rows += measure_peer(python, name, split, chosen, seed, options.inner)
        else:
            for setting in settings(name, options):
                for split, seed in fits:
                    rows += measure(split, setting, seed, options)
    return rows


def main(arguments: list[str] | None = None) -> None:
    p = parser(__doc__, data="alog,enron,dblp", folds="1,2,3,4,5", methods="default", ranks=None, sweeps=None, seed=0)
    p.add_argument("--seeds", type=int, default=1, help="seeds of each fit, --seed the first (default: %(default)s)")
    p.add_argument("--priors", type=common.words("fixed", "learned", "ard"), help="between commas (default: its own)")
    text = "words or main=1:pair=3:cp=3, between commas (default: its own)"
    p.add_argument("--interactions", type=common.words(), help=text)
    p.add_argument("--ensembles", type=common.numbers, help="numbers of fits that are mixed (default: its own)")
    p.add_argument("--inner", action="store_true", help="score held-out training entries")
    p.add_argument("--entries", type=int, help="take only so many training entries")
    p.add_argument("--sets", type=int, default=50, help="test sets of DBLP (default: %(default)s)")
    p.add_argument("--environment", type=Path, default=ENVIRONMENT, help="folder of the peers (default: %(default)s)")
    options = p.parse_args(arguments)
    common.check_words(p, options, data=SHAPES, methods=("default", "paper", "all", *METHODS, *PEER_NAMES))
    rows: list[Row] = []
    names = [word for name in options.methods for word in (["default", *METHODS] if name == "all" else [name])]
    for data in options.data:
        rows += measured(data, list(dict.fromkeys(names)), options)
    averages = heldout.summary(rows)
    common.report([*rows, *averages], options.json, heldout.tables(averages))


if __name__ == "__main__":
    main()
