"""Labels in a column of an Arrow table."""

from __future__ import annotations

from typing import Any

import numpy as np


def labels_of(column: Any, name: str) -> Any:
    """The whole numbers of a column, pyarrow's ``ChunkedArray``, as an int64 array. Raises ValueError if
    one is null."""
    if column.null_count:
        (rows,) = np.nonzero(column.is_null().to_numpy())
        raise ValueError(
            f"column {name!r} is null in {len(rows)} rows, the first of which is row {rows[0]}"
        )
    # Copied: the column may be of a mapped file, which may be cut off.
    return column.to_numpy().astype(np.int64)
