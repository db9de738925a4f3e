"""
Records from a queue
====================

Score each entry before it is learned, forget a sensor, go on tomorrow.
"""

import tempfile
from pathlib import Path

import pandas as pd

from tensorcep import CPRegressor, simulate_cp

tensor = simulate_cp((40, 30, 5), 2, 3000, noise_precision=4.0, random_state=0).tensor
records = tensor.to_pandas(["sensor", "line", "shift"], "value").to_dict("records")
queue, told = [records[n : n + 500] for n in range(0, 3000, 500)], []
model = CPRegressor(2, revisit=3000, random_state=0)
model.stream(queue, modes=["sensor", "line", "shift"], value="value", scores=told.append)
print("log scores of the batches:", model.stream_trace_["log_score"].round(2))
print(pd.concat(told).nlargest(3, "surprise").round(2))
print(model.forget_rows("sensor", 7).forgotten_)
model.save(Path(tempfile.mkdtemp()) / "model.npz")
