"""SMURFF and myFM on the folds of our own measurements, each fit in a process and an environment of their own.

Both are Gibbs samplers with learned hyper-parameters: SMURFF of the CP model, myFM of a factorisation machine (pairwise
products of rows). Their settings are their defaults, with which myFM asks for a rank, and for each data set settings
that do well on it.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from scripts.lib.accuracy import draw_scores, label_scores, probability_below, value_scores
from scripts.lib.common import Row, row, say
from scripts.lib.heldout import LABELLED, Split
from scripts.lib.peers.environment import run_worker

PEERS = ("smurff", "myfm")
WORKER = Path(__file__).with_name("run.py")
ENVIRONMENT = Path(tempfile.gettempdir()) / "tensorcep-peers"


class PeerSetting(NamedTuple):
    """What a peer is given; None is its own default. `precision` "learned" is SMURFF's adaptive noise."""

    rank: int | None = None
    sweeps: int | None = None
    burn_in: int | None = None
    precision: float | str | None = None
    grouped: bool = False  # myFM: a prior for each mode


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


def run_peer(
    python: Path,
    peer: str,
    split: Split,
    setting: PeerSetting,
    *,
    seed: int = 1,
    threads: int = 1,
    predict: bool = True,
    features: Sequence[np.ndarray] | None = None,
) -> dict[str, np.ndarray]:
    """What run.py writes about one fit; of the rows of every mode there may be `features`."""
    fold: dict[str, Any] = {"shape": split.shape, "coords": split.train.coords, "y": split.train.y}
    if predict:
        fold |= {"test_coords": split.held.coords, "test_y": split.held.y}
    fold |= {f"features_{k}": known for k, known in enumerate(features or ())}
    settings = {**setting._asdict(), "labels": split.data in LABELLED, "seed": seed, "threads": threads}
    return run_worker(python, WORKER, peer, threads, settings=json.dumps(settings), **fold)


def peer_settings(name: str, data: str, ranks: list[int] | None) -> list[PeerSetting]:
    """The settings of "smurff" or "myfm", of the ranks asked for, or with "-default" its own."""
    if name.endswith("-default"):
        return [DEFAULTS[name.removesuffix("-default")]]
    return [setting for setting in CHOSEN[name, data] if ranks is None or setting.rank in ranks]


def measure_peer(python: Path, name: str, split: Split, setting: PeerSetting, seed: int, inner: bool) -> list[Row]:
    """Fit one split and score it, in rows as those of our estimators.

    Times are those of the fit; SMURFF predicts the test entries during it.
    """
    peer, labelled = name.removesuffix("-default"), split.data in LABELLED
    found = run_peer(python, peer, split, setting, seed=seed)
    noise = None if labelled or peer == "myfm" else f"precision {setting.precision or 5.0}"
    about: dict[str, Any] = {"data": split.data, "fold": split.fold, "method": name, "rank": setting.rank, "seed": seed}
    about |= {"noise": noise} | ({"inner": 1} if inner else {})
    scored = (label_scores if labelled else value_scores)(split, found["predicted"])
    if "observations" in found:
        scored["log_score"] = float(found["log_density"].mean())
        scored |= draw_scores(split, found["observations"], probability_below(split.held.y, found["observations"]))
    scored |= {"seconds_fit": float(found["seconds"]), "cpu_seconds_fit": float(found["cpu_seconds"])}
    scored["sweeps_done"] = len(found["sweep_seconds"])
    label = f"{split.data} fold {split.fold} {name} rank {setting.rank} seed {seed}: "
    say(label + ", ".join(f"{metric} {value:.4g}" for metric, value in scored.items()))
    return [row(metric, value, **about) for metric, value in scored.items()]
