"""Live models on disk: a ZIP archive of plain NumPy arrays and one JSON document, without pickle.

The file is an ``.npz`` with stored (not compressed) members, so that no member can be larger than the file. What is
read is checked before anything of its size is allocated, and again as data.

Every file has a token, drawn at random when it is written. A model replaces a file only if it knows the token: what it
did not load or save itself may hold changes that would be lost.
"""

import hashlib
import json
import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru._files import hold_lock, list_leftovers, open_archive, remove_leftovers, write_atomically
from glru.linalg import Array, Matrix, as_matrix
from glru.live import history
from glru.live.history import Entry
from glru.live.state import (
    FORGOTTEN,
    ModelSpec,
    NewColumns,
    Pending,
    Positions,
    Rows,
    State,
    TrainedKeys,
    as_keys,
    parse_json,
)
from glru.problem import Point, Problem
from glru.solution import Status, make_solution

SCHEMA = "glru-live/2"

ArrayDict = dict[str, np.ndarray]


@final
@dataclass(frozen=True, eq=False)
class Saved:
    """Everything a live model is."""

    state: State
    history: tuple[Entry, ...]
    tol: float
    width: float


def resolve_path(path: str | os.PathLike[str]) -> Path:
    """A path as a model remembers it, however it is spelt."""
    return Path(path).parent.resolve() / Path(path).name


def save(path: str | os.PathLike[str], saved: Saved, token: str, known: Collection[str] | None) -> None:
    """Write a live model with a new token; the file appears, or is replaced, all at once.

    ``known``: the tokens of files that may be replaced; None for any file.
    """
    target, arrays = Path(path), pack(saved, token)

    def write(part: Path) -> None:
        with open(part, "wb", opener=_open_private) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    with hold_lock(target):
        remove_leftovers(target)
        if known is not None:
            _check_known(target, known)
        write_atomically(target, write)


def pack(saved: Saved, token: str) -> ArrayDict:
    """Everything a live model is as plain arrays, one of which is a JSON document."""
    arrays, document = _to_arrays(saved)
    text = json.dumps({**document, "token": token}, allow_nan=False)
    return {**arrays, "document": np.frombuffer(text.encode(), dtype=np.uint8)}


def _check_known(target: Path, known: Collection[str]) -> None:
    """Refuse to replace a file that is not one of those that are known."""
    if target.is_file() and _read_token_at(target) not in known:
        raise FileExistsError(
            f"{target} must be a new file, or be as this model last loaded or saved it; it is not: another process or model "
            "wrote it, and what it holds would be lost. Load it and repeat your changes there, save under another name, or "
            "pass overwrite=True to replace it."
        )


def _read_token_at(path: Path) -> str | None:
    """The token of a file; None if it is not the file of a live model."""
    try:
        with path.open("rb") as file, open_archive(file, packed=False) as archive:
            return _parse_token(archive.read("document"))
    except (ValueError, KeyError, RecursionError):
        return None


def _parse_token(document: NDArray[Any]) -> str:
    """The token in a document; what stands for it in files that have none."""
    text = document.tobytes()
    found = parse_json(text.decode())
    token = found.get("token") if isinstance(found, dict) else None
    return token if isinstance(token, str) else hashlib.sha256(text).hexdigest()


def _open_private(path: str, flags: int) -> int:
    """Open a file that its owner alone may read: it holds training data."""
    return os.open(path, flags, 0o600)


def load(path: str | os.PathLike[str]) -> tuple[Saved, str]:
    """A live model and the token of its file; a ``ValueError`` says why a file cannot be read as one."""
    _remove_old_parts(Path(path))
    try:
        with open(path, "rb") as file, open_archive(file, packed=False) as archive:
            members = {name: archive.read(name) for name in archive.names}
        return unpack(members), _parse_token(members["document"])
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{os.fspath(path)} is not a whole file of a live model: {error!r}.") from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{os.fspath(path)} is not a whole file of a live model: {error}") from None


def _remove_old_parts(target: Path) -> None:
    """Remove the parts that killed processes left behind, if the folder allows it and nobody is saving."""
    if not list_leftovers(target):
        return
    try:
        with hold_lock(target, wait=False) as held:
            if held:
                remove_leftovers(target)
    except OSError:
        # This process may not write here: one that may will remove them.
        return


def _to_arrays(saved: Saved) -> tuple[ArrayDict, dict[str, Any]]:
    state = saved.state
    solution, pending = state.solution, state.pending
    trained_keys = () if pending.keys is None else pending.keys.keys
    arrays: ArrayDict = {
        **_matrix_to_arrays("X", pending.base.matrix),
        "y": pending.base.y.astype(np.float64),
        "weight": pending.base.sample_weight,
        "coef": solution.coef,
        "dual": solution.dual,
        "gone_rows": pending.gone_rows.astype(np.int64),
        "gone_columns": pending.gone_columns.astype(np.int64),
    }
    if pending.arrived is not None:
        arrays |= _matrix_to_arrays("new_X", pending.arrived.X)
        arrays |= {"new_y": pending.arrived.y.astype(np.float64), "new_weight": pending.arrived.weight}
    for k, block in enumerate(pending.new_columns):
        arrays |= {f"columns_{k}_rows": block.rows.astype(np.int64), **_matrix_to_arrays(f"columns_{k}", block.X)}
    document = {
        "schema": SCHEMA,
        "terms": state.spec.to_json(),
        "solution": {
            "intercept": np.asarray(solution.intercept, dtype=np.float64).tolist(),
            "n_iter": int(solution.n_iter),
            "status": solution.status,
            "solver": solution.solver,
        },
        "revision": state.revision,
        "exhausted": state.exhausted,
        "n_column_blocks": len(pending.new_columns),
        "has_new_rows": pending.arrived is not None,
        "keys": None if pending.keys is None else [None if key is FORGOTTEN else key for key in trained_keys],
        "forgotten_keys": [place for place, key in enumerate(trained_keys) if key is FORGOTTEN],
        "new_keys": [] if pending.arrived is None else list(pending.arrived.keys or ()),
        "history": [history.to_json(entry) for entry in saved.history],
        "tol": saved.tol,
        "width": saved.width,
    }
    return arrays, document


def _matrix_to_arrays(name: str, X: Matrix) -> ArrayDict:
    return {f"{name}_{part}" if part else name: array for part, array in X.parts.items()}


def unpack(arrays: ArrayDict) -> Saved:
    """What :func:`pack` packed; an error where the arrays are not that."""
    document = parse_json(arrays["document"].tobytes().decode())
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        shown = document.get("schema") if isinstance(document, dict) else document
        raise ValueError(f"its schema must be {SCHEMA!r}; got {str(shown)[:50]!r}. Use the version that wrote it.")
    return Saved(
        _read_state(arrays, document),
        tuple(history.from_json(entry) for entry in document["history"]),
        float(document["tol"]),
        float(document["width"]),
    )


def _read_state(arrays: ArrayDict, document: dict[str, Any]) -> State:
    spec, stored = ModelSpec.from_json(document["terms"]), document["solution"]
    X = _read_matrix("X", arrays)
    y, weight = _read_targets("", arrays, X.shape[0], spec)
    problem = spec.objective.problem(X, y, weight)
    classes = (problem.n_scores,) if problem.loss.several else ()
    if problem.loss.several and problem.n_scores != spec.n_classes:
        raise ValueError("the trained rows must have all classes.")
    intercept: Any = np.array(stored["intercept"], dtype=np.float64)
    point = Point(
        _read_vector("coef", arrays, *classes, problem.n_columns),
        intercept if classes else float(intercept),
        _read_vector("dual", arrays, problem.n_rows, *classes),
    )
    if intercept.shape != classes or not np.isfinite(intercept).all() or stored["status"] not in get_args(Status):
        raise ValueError("the stored model is not valid.")
    solution = make_solution(problem, point, int(stored["n_iter"]), stored["status"], str(stored["solver"]))
    pending = _read_pending(arrays, document, problem, spec)
    names = spec.column_names
    if names is not None and len(names) != pending.n_columns - spec.offset:
        raise ValueError(f"there must be one name per column; got {len(names)}.")
    return State.from_pending(spec, solution, pending, int(document["revision"]), document["exhausted"] is True)


def _read_pending(arrays: ArrayDict, document: dict[str, Any], problem: Problem, spec: ModelSpec) -> Pending:
    gone_rows = _read_positions("gone_rows", arrays, problem.n_rows)
    gone_columns = _read_positions("gone_columns", arrays, problem.n_columns)
    blocks = []
    for k in range(int(document["n_column_blocks"])):
        block, rows = _read_matrix(f"columns_{k}", arrays), _read_positions(f"columns_{k}_rows", arrays, problem.n_rows)
        penalty = spec.objective.penalty(block.shape[1])
        if block.shape[0] != rows.size:
            raise ValueError("new columns must have one value per row.")
        blocks.append(NewColumns(rows, block, None if penalty.n_columns is None else penalty))
    pending = Pending(problem, None, gone_rows, gone_columns, (), tuple(blocks))
    new = None
    if document["has_new_rows"] is True:
        X = _read_matrix("new_X", arrays)
        if X.shape[1] != pending.n_columns:
            raise ValueError(f"new rows must have {pending.n_columns} columns; got {X.shape[1]}.")
        new = Rows(X, *_read_targets("new_", arrays, X.shape[0], spec), None)
    if pending.n_kept_rows + (0 if new is None else new.y.size) < 1 or pending.n_columns <= spec.offset:
        raise ValueError("at least one row and one column must be left.")
    return _attach_keys(pending, new, document)


def _attach_keys(pending: Pending, new: Rows | None, document: dict[str, Any]) -> Pending:
    """Pending changes with new rows and with the keys of all rows."""
    keys, new_keys, lost = (
        document["keys"],
        as_keys(document["new_keys"]),
        np.array(document["forgotten_keys"], dtype=int),
    )
    if len(new_keys) != (0 if new is None or keys is None else new.y.size):
        raise ValueError(f"there must be one key per new row; got {len(new_keys)}.")
    if not np.all(np.isin(lost, pending.gone_rows)):
        raise ValueError("only keys of removed rows can be forgotten.")
    if keys is None:
        return pending if new is None else replace(pending, new_rows=(new,))
    if len(keys) != pending.base.n_rows:
        raise ValueError(f"there must be one key per trained row; got {len(keys)}.")
    # Checked apart: None is a key, too.
    as_keys([key for place, key in enumerate(keys) if place not in set(lost.tolist())])
    rows = () if new is None else (replace(new, keys=new_keys),)
    found = replace(pending, keys=TrainedKeys(tuple(keys)).forget(lost), new_rows=rows)
    as_keys(found.present_keys)
    return found


def _read_targets(prefix: str, arrays: ArrayDict, size: int, spec: ModelSpec) -> tuple[Array, Array]:
    y, weight = _read_vector(f"{prefix}y", arrays, size), _read_vector(f"{prefix}weight", arrays, size)
    if spec.objective.loss.several:
        wrong = not np.all(np.isin(y, np.arange(spec.n_classes)))
        y = y.astype(np.intp) if not wrong else y
    else:
        wrong = spec.classes is not None and not np.all(np.abs(y) == 1.0)
    if np.any(weight < 0.0) or wrong:
        raise ValueError("targets of a classifier must be -1 and +1 or places of classes, and weights at least 0.")
    return y, weight


def _read_matrix(name: str, arrays: ArrayDict) -> Matrix:
    if name in arrays:
        X = arrays[name]
        if X.ndim != 2 or X.dtype != np.float64 or not np.all(np.isfinite(X)):
            raise ValueError(f"{name} must be a finite matrix of float64; got {X.dtype} of shape {X.shape}.")
        return as_matrix(X)
    data, indices, indptr, shape = (arrays[f"{name}_{part}"] for part in ("data", "indices", "indptr", "shape"))
    if data.dtype != np.float64 or not np.all(np.isfinite(data)) or shape.shape != (2,):
        raise ValueError(f"{name} must be a finite matrix of float64.")
    if shape[0] + 1 != indptr.size or indices.size != data.size or shape[1] < 1:
        raise ValueError(f"{name} must have the shape its rows have.")
    matrix = sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
    matrix.check_format(full_check=True)
    return as_matrix(matrix)


def _read_vector(name: str, arrays: ArrayDict, *shape: int) -> Array:
    vector = arrays[name]
    if vector.shape != shape or vector.dtype != np.float64 or not np.all(np.isfinite(vector)):
        size = " x ".join(map(str, shape))
        raise ValueError(f"{name} must hold {size} finite numbers; got {vector.dtype} of shape {vector.shape}.")
    return vector


def _read_positions(name: str, arrays: ArrayDict, size: int) -> Positions:
    places = arrays[name]
    if places.ndim != 1 or places.dtype != np.int64:
        raise ValueError(f"{name} must hold positions; got {places.dtype} of shape {places.shape}.")
    ordered = np.all(np.diff(places) > 0) and (not places.size or (places[0] >= 0 and places[-1] < size))
    if not ordered:
        raise ValueError(f"{name} must hold increasing positions below {size}.")
    return places.astype(np.intp)
