"""CPU seconds of reading files of a million entries, beside pandas, which checks nothing."""

from __future__ import annotations

import collections
import time

import numpy as np
import pandas as pd

import tensorcep as tc
from tensorcep import SparseTensor
from tensorcep.entries.io import read_batches

LINES, SHAPE = 1_000_000, (20_000, 10_000, 5_000)
FILES = {"csv": "numbers.csv", "text": "text.csv", "tns": "numbers.tns", "parquet": "numbers.parquet"}


class Read:
    """`read_tensor` of each kind of file, and pandas, which for text codes the labels too."""

    params = (list(FILES), ["tensorcep", "pandas"])
    param_names = ("kind", "reader")
    timer = time.process_time  # of all threads together
    timeout = 600

    def setup_cache(self) -> None:
        """The same entries in every kind of file: distinct random cells, values of six decimals."""
        rng = np.random.default_rng(0)
        cells = SparseTensor.from_coo(np.empty((0, 3)), [], SHAPE).sample_zeros(LINES, random_state=0).coords + 1
        frame = pd.DataFrame(cells, columns=["user", "item", "tag"]).assign(y=rng.standard_normal(LINES).round(6))
        frame.to_csv(FILES["csv"], index=False)
        frame.to_csv(FILES["tns"], sep=" ", header=False, index=False)
        frame.to_parquet(FILES["parquet"])
        for name in ("user", "item", "tag"):
            frame[name] = f"{name}_" + frame[name].astype(str)
        frame.to_csv(FILES["text"], index=False)

    def time_whole(self, kind: str, reader: str) -> None:
        path = FILES[kind]
        if reader == "tensorcep":
            tc.read_tensor(path, labels=None if kind == "tns" else kind == "text")
        elif kind == "parquet":
            pd.read_parquet(path)
        else:
            frame = pd.read_csv(path, **({"sep": " ", "header": None} if kind == "tns" else {}))
            for name in frame.columns[:-1] if kind == "text" else ():
                pd.factorize(frame[name], sort=True)

    def time_in_batches(self, kind: str, reader: str) -> None:
        if kind in ("tns", "parquet"):
            raise NotImplementedError
        ours = read_batches(FILES[kind], 1000, labels=kind == "text") if reader == "tensorcep" else None
        parts = pd.read_csv(FILES[kind], chunksize=1 << 16) if ours is None else ours
        collections.deque(parts, maxlen=0)
