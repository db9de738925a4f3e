"""Records from a queue: score each batch before it is learned, keep the model, go on tomorrow."""

import tempfile
from pathlib import Path

from tensorcep import CPRegressor, simulate_cp

tensor = simulate_cp((40, 30, 5), 2, 3000, noise_precision=4.0, random_state=0).tensor
records = tensor.to_pandas(["sensor", "line", "shift"], "value").to_dict("records")
queue = [records[n : n + 500] for n in range(0, 3000, 500)]
model = CPRegressor(2, random_state=0).stream(queue[:-1], modes=["sensor", "line", "shift"], value="value")
print("log scores of the batches:", model.stream_trace_["log_score"].round(2))
model.save(Path(tempfile.mkdtemp()) / "model.npz")
print(model.anomaly_score(queue[-1], value="value").nlargest(2, "surprise").round(2))
