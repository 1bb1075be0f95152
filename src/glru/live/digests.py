"""SHA-256 over bytes that do not depend on how data is stored, and JSON that can be read in one way only.

docs/receipts.md says which bytes.
"""

import hashlib
import json
from typing import Any

import numpy as np

from glru.linalg import Array, Matrix


def parse_json(text: str | bytes) -> Any:
    """The value of JSON text in which no object has a key twice: readers differ in which of the two they take."""
    return json.loads(text, object_pairs_hook=_distinct)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"each key of an object must be there once; got {key[:50]!r} again")
        found[key] = value
    return found


def of_json(value: Any) -> str:
    """The digest of a JSON value: keys in order, no spaces, UTF-8."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def of_rows(X: Matrix, y: Array, weight: Array) -> list[str]:
    """One digest a row: number of columns, columns and values that are not zero, target, weight."""
    found = []
    width = np.array([X.shape[1]], dtype="<i8").tobytes()
    ends = np.column_stack([y, weight]).astype("<f8") + 0.0
    for k, (columns, values) in enumerate(X.nonzeros()):
        row = hashlib.sha256(b"glru-row/1" + width)
        row.update(columns.astype("<i8").tobytes())
        row.update(values.astype("<f8").tobytes())
        row.update(ends[k].tobytes())
        found.append(row.hexdigest())
    return found


def of_data(rows: list[str]) -> str:
    """The digest of a set of rows, in whatever order, from the digests of the rows."""
    return hashlib.sha256("".join(sorted(rows)).encode()).hexdigest()


def of_model(terms: dict[str, Any], coef: Array, intercept: float) -> str:
    """The digest of a model: its terms without the names of columns, its coefficients and its intercept."""
    nameless = {key: value for key, value in terms.items() if key != "column_names"}
    return of_json({"terms": nameless, "coef": coef.tolist(), "intercept": float(intercept)})
