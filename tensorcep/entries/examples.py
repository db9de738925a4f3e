"""Examples of entries and labels, by the names of what they show; they are part of the docstrings."""

from __future__ import annotations

EXAMPLES: dict[str, str] = {
    "Labels": """
>>> from tensorcep import Labels
>>> cells = Labels(["Treg", "NK"], name="cell")
>>> cells.rows(["NK", "Treg"]).tolist(), cells[0]
([1, 0], 'Treg')
""",
    "Labels.extended": """
>>> from tensorcep import Labels
>>> Labels(["Treg", "NK"]).extended(["NK", "B"])
Labels(['Treg', 'NK', 'B'], n=3)
""",
    "Labels.from_column": """
>>> from tensorcep import Labels
>>> labels, rows = Labels.from_column(["Treg", "NK", "Treg"], name="cell")
>>> len(labels), rows.tolist()
(2, [1, 0, 1])
""",
    "Labels.rows": """
>>> from tensorcep import Labels
>>> Labels(["Treg", "NK"]).rows(["NK", "NK", "Treg"]).tolist()
[1, 1, 0]
""",
    "SparseTensor": """
>>> from tensorcep import SparseTensor
>>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
>>> tensor.shape, tensor.nnz, tensor.density
((3, 2), 4, 0.6666666666666666)
""",
    "SparseTensor.from_coo": """
>>> from tensorcep import SparseTensor
>>> SparseTensor.from_coo([[0, 0], [1, 2]], [0.5, 1.5]).shape
(2, 3)
""",
    "SparseTensor.from_dense": """
>>> import numpy as np
>>> from tensorcep import SparseTensor
>>> SparseTensor.from_dense([[1.0, np.nan], [2.0, 3.0]]).nnz
3
""",
    "SparseTensor.from_pandas": """
>>> import pandas as pd
>>> from tensorcep import SparseTensor
>>> table = pd.DataFrame({"user": ["u1", "u2"], "item": ["i1", "i1"], "stars": [4.0, 5.0]})
>>> SparseTensor.from_pandas(table, modes=["user", "item"], value="stars").shape
(2, 1)
""",
    "SparseTensor.from_scipy": """
>>> import scipy.sparse as sp
>>> from tensorcep import SparseTensor
>>> SparseTensor.from_scipy(sp.coo_array(([1.0, 2.0], ([0, 1], [1, 0])))).nnz
2
""",
    "SparseTensor.from_sparse": """
>>> import sparse
>>> from tensorcep import SparseTensor
>>> SparseTensor.from_sparse(sparse.COO([[0, 1], [1, 0], [0, 0]], [1.0, 2.0], (2, 2, 1))).shape
(2, 2, 1)
""",
    "SparseTensor.from_tensorly": """
>>> import numpy as np
>>> from tensorcep import SparseTensor
>>> SparseTensor.from_tensorly(np.ones((2, 3)), mask=np.eye(2, 3)).nnz
2
""",
    "SparseTensor.info": """
>>> from tensorcep import SparseTensor
>>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
>>> tensor.info().density
0.6666666666666666
""",
    "SparseTensor.to_dense": """
>>> from tensorcep import SparseTensor
>>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
>>> tensor.to_dense(fill=0.0).tolist()
[[1.0, 2.0], [3.0, 0.0], [0.0, 4.0]]
""",
    "SparseTensor.to_pandas": """
>>> from tensorcep import SparseTensor
>>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
>>> tensor.to_pandas(["user", "item"], "stars").columns.tolist()
['user', 'item', 'stars']
""",
    "SparseTensor.to_scipy": """
>>> from tensorcep import SparseTensor
>>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
>>> tensor.to_scipy().shape
(3, 2)
""",
    "SparseTensor.to_sparse": """
>>> from tensorcep import SparseTensor
>>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
>>> tensor.to_sparse(fill=0.0).shape
(3, 2)
""",
    "SparseTensor.to_tensorly": """
>>> from tensorcep import SparseTensor
>>> tensor = SparseTensor.from_coo([[0, 0], [0, 1], [1, 0], [2, 1]], [1.0, 2.0, 3.0, 4.0], (3, 2))
>>> values, mask = tensor.to_tensorly()
>>> int(mask.sum())
4
""",
}
