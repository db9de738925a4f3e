"""
Learn a csv file batch by batch
===============================

In pieces that fit in memory, every batch scored before it is learned.

``python scripts/examples/stream_csv.py [FILE.csv]``: the last column is the value, every other one a mode.
"""

import sys
import tempfile
from pathlib import Path

import pandas as pd

from tensorcep import CPRegressor, simulate_cp

if len(sys.argv) > 1:
    file = Path(sys.argv[1])
else:  # 20,000 ratings in the order in which they come in
    file = Path(tempfile.mkdtemp(prefix="tensorcep-")) / "ratings.csv"
    ratings = simulate_cp((200, 100, 12), 3, 20_000, noise_precision=4.0, prior_mean=0.7, random_state=0).tensor
    frame = pd.DataFrame(ratings.coords, columns=["user", "item", "month"]).assign(rating=ratings.values)
    frame.sample(frac=1.0, random_state=0).to_csv(file, index=False)


def told(model: CPRegressor, scores: dict[str, float]) -> None:
    """After each batch; the very first one has no scores."""
    print(f"{scores['n_samples_seen']:6.0f} entries  rmse {scores['rmse']:.3f}  log score {scores['log_score']:.3f}")


model = CPRegressor(rank=3, random_state=0)
model.stream(file, batch_size=1000, first_batch=5000, callback=told)

more = pd.read_csv(file).tail(100)  # another batch, at any time; users and items that are new get rows of their own
labels = more[more.columns[:-1]].astype(str)  # text, as labels of a stream from a file are
model.partial_fit(labels, more[more.columns[-1]])
print(f"{model.n_samples_seen_} entries in all, model of {model.method_!r}")
