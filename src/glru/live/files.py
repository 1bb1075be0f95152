"""Live models on disk: a ZIP archive of plain NumPy arrays and one JSON document, without pickle.

The file is an ``.npz`` with stored (not compressed) members, so that no member can be larger than the file. What is
read is checked before anything of its size is allocated, and again as data.

Every file has a token, drawn at random when it is written. A model replaces a file only if it knows the token: what it
did not load or save itself may hold changes that would be lost.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final, get_args

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from glru._archives import opened
from glru._files import exclusive, leftovers, remove_leftovers, write_atomically
from glru.linalg import Array, Matrix, as_matrix
from glru.live import history
from glru.live.digests import parse_json
from glru.live.history import Entry
from glru.live.ledger import Ledger, NewColumns, Positions, Rows
from glru.live.roster import Roster, as_keys
from glru.live.standing import Standing
from glru.live.terms import Terms
from glru.point import Point
from glru.solution import Status, solution_at

SCHEMA = "glru-live/1"

Arrays = dict[str, np.ndarray]


@final
@dataclass(frozen=True, eq=False)
class Saved:
    """Everything a live model is."""

    standing: Standing
    history: tuple[Entry, ...]
    tol: float
    width: float | None


def new_token() -> str:
    """A token for a file that is about to be written."""
    return secrets.token_hex(16)


def place(path: str | os.PathLike[str]) -> Path:
    """A path as a model remembers it, however it is spelt."""
    return Path(path).parent.resolve() / Path(path).name


def save(path: str | os.PathLike[str], saved: Saved, token: str, known: Collection[str] | None) -> None:
    """Write a live model; the file appears, or is replaced, all at once.

    Parameters
    ----------
    path : str or path
        The file.
    saved : Saved
        What to write.
    token : str
        The token of the new file.
    known : collection of str or None
        Tokens of files that may be replaced; None for any file.
    """
    target, arrays = Path(path), pack(saved, token)

    def write(part: Path) -> None:
        with open(part, "wb", opener=_private) as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    with exclusive(target):
        remove_leftovers(target)
        if known is not None:
            _check_known(target, known)
        write_atomically(target, write)


def pack(saved: Saved, token: str) -> Arrays:
    """Everything a live model is as plain arrays, one of which is a JSON document."""
    arrays, document = _written(saved)
    text = json.dumps({**document, "token": token}, allow_nan=False)
    return {**arrays, "document": np.frombuffer(text.encode(), dtype=np.uint8)}


def _check_known(target: Path, known: Collection[str]) -> None:
    """Refuse to replace a file that is not one of those that are known."""
    if target.is_file() and _token_at(target) not in known:
        raise FileExistsError(
            f"{target} must be a new file, or be as this model last loaded or saved it; it is not: another process or model "
            "wrote it, and what it holds would be lost. Load it and repeat your changes there, save under another name, or "
            "pass overwrite=True to replace it."
        )


def _token_at(path: Path) -> str | None:
    """The token of a file; None where it is no file of a live model."""
    try:
        with path.open("rb") as file, opened(file, packed=False) as archive:
            return _token(archive.read("document"))
    except (ValueError, KeyError, RecursionError):
        return None


def _token(document: NDArray[Any]) -> str:
    """The token in a document; what stands for it in files that have none."""
    text = document.tobytes()
    found = parse_json(text.decode())
    token = found.get("token") if isinstance(found, dict) else None
    return token if isinstance(token, str) else hashlib.sha256(text).hexdigest()


def _private(path: str, flags: int) -> int:
    """Open a file that its owner alone may read: it holds training data."""
    return os.open(path, flags, 0o600)


def load(path: str | os.PathLike[str]) -> tuple[Saved, str]:
    """A live model and the token of its file; a ``ValueError`` says why a file is none."""
    _clean(Path(path))
    try:
        members = _members(path)
        return unpack(members), _token(members["document"])
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise ValueError(f"{os.fspath(path)} is not a whole file of a live model: {error!r}.") from None
    except (ValueError, RecursionError, OverflowError) as error:
        raise ValueError(f"{os.fspath(path)} is not a whole file of a live model: {error}") from None


def _clean(target: Path) -> None:
    """Remove what killed processes left of the file, as far as the folder allows it and nobody is saving."""
    if not leftovers(target):
        return
    try:
        with exclusive(target, wait=False) as held:
            if held:
                remove_leftovers(target)
    except OSError:
        # Nothing may be written here: whoever may will remove it.
        return


def _written(saved: Saved) -> tuple[Arrays, dict[str, Any]]:
    standing = saved.standing
    solution, ledger, roster = standing.solution, standing.ledger, standing.roster
    arrays: Arrays = {
        **_matrix_out("X", ledger.base.matrix),
        "y": ledger.base.y,
        "weight": ledger.base.sample_weight,
        "coef": solution.coef,
        "dual": solution.dual,
        "gone_rows": ledger.gone_rows.astype(np.int64),
        "gone_columns": ledger.gone_columns.astype(np.int64),
    }
    if ledger.arrived is not None:
        arrays |= _matrix_out("new_X", ledger.arrived.X)
        arrays |= {"new_y": ledger.arrived.y, "new_weight": ledger.arrived.weight}
    for k, block in enumerate(ledger.new_columns):
        arrays |= {f"columns_{k}_rows": block.rows.astype(np.int64), **_matrix_out(f"columns_{k}", block.X)}
    document = {
        "schema": SCHEMA,
        "terms": standing.terms.to_json(),
        "solution": {
            "intercept": float(solution.intercept),
            "n_iter": int(solution.n_iter),
            "status": solution.status,
            "solver": solution.solver,
        },
        "revision": standing.revision,
        "exhausted": standing.exhausted,
        "n_column_blocks": len(ledger.new_columns),
        "has_new_rows": ledger.arrived is not None,
        "keys": None if roster.trained is None else list(roster.trained),
        "new_keys": list(roster.new),
        "history": [history.to_json(entry) for entry in saved.history],
        "tol": saved.tol,
        "width": saved.width,
    }
    return arrays, document


def _matrix_out(name: str, X: Matrix) -> Arrays:
    return {f"{name}_{part}" if part else name: array for part, array in X.parts.items()}


def _members(path: str | os.PathLike[str]) -> Arrays:
    """The arrays in a file."""
    with open(path, "rb") as file, opened(file, packed=False) as archive:
        return {name: archive.read(name) for name in archive.names}


def unpack(arrays: Arrays) -> Saved:
    """What :func:`pack` packed; an error where the arrays are not that."""
    document = parse_json(arrays["document"].tobytes().decode())
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        shown = document.get("schema") if isinstance(document, dict) else document
        raise ValueError(f"its schema must be {SCHEMA!r}; got {str(shown)[:50]!r}. Use the version that wrote it.")
    width = document["width"]
    return Saved(
        _standing(arrays, document),
        tuple(history.from_json(entry) for entry in document["history"]),
        float(document["tol"]),
        None if width is None else float(width),
    )


def _standing(arrays: Arrays, document: dict[str, Any]) -> Standing:
    terms, stored = Terms.from_json(document["terms"]), document["solution"]
    X = _matrix_in("X", arrays)
    y, weight = _vector("y", arrays, X.shape[0]), _vector("weight", arrays, X.shape[0])
    problem = terms.problem(X, y, weight)
    if terms.classes is not None and not np.all(np.abs(y) == 1.0):
        raise ValueError("targets of a classifier must be -1 and +1.")
    point = Point(
        _vector("coef", arrays, problem.n_columns), float(stored["intercept"]), _vector("dual", arrays, problem.n_rows)
    )
    if not np.isfinite(point.intercept) or stored["status"] not in get_args(Status):
        raise ValueError("the stored model is not valid.")
    solution = solution_at(problem, point, int(stored["n_iter"]), stored["status"], str(stored["solver"]))
    ledger = _ledger(arrays, document, problem, terms)
    keys = document["keys"]
    roster = Roster(None if keys is None else as_keys(keys, problem.n_rows), as_keys(document["new_keys"]))
    _check_roster(roster, ledger)
    names = terms.column_names
    if names is not None and len(names) != ledger.n_columns - terms.offset:
        raise ValueError(f"there must be one name a column; got {len(names)}.")
    return Standing.stored(terms, solution, ledger, roster, int(document["revision"]), document["exhausted"] is True)


def _ledger(arrays: Arrays, document: dict[str, Any], problem: Any, terms: Terms) -> Ledger:
    n_rows, n_columns = problem.n_rows, problem.n_columns
    gone_rows, gone_columns = _places("gone_rows", arrays, n_rows), _places("gone_columns", arrays, n_columns)
    blocks = []
    for k in range(int(document["n_column_blocks"])):
        block, rows = _matrix_in(f"columns_{k}", arrays), _places(f"columns_{k}_rows", arrays, n_rows)
        penalty = terms.objective.penalty(block.shape[1])
        if block.shape[0] != rows.size:
            raise ValueError("new columns must have one value a row.")
        blocks.append(NewColumns(rows, block, None if penalty.n_columns is None else penalty))
    ledger = Ledger(problem, gone_rows, gone_columns, (), tuple(blocks))
    if document["has_new_rows"] is True:
        X = _matrix_in("new_X", arrays)
        size = X.shape[0]
        if X.shape[1] != ledger.n_columns:
            raise ValueError(f"new rows must have {ledger.n_columns} columns; got {X.shape[1]}.")
        y, weight = _vector("new_y", arrays, size), _vector("new_weight", arrays, size)
        if np.any(weight < 0.0) or (terms.classes is not None and not np.all(np.abs(y) == 1.0)):
            raise ValueError("new rows must have valid targets and weights.")
        ledger = Ledger(problem, gone_rows, gone_columns, (Rows(X, y, weight),), tuple(blocks))
    if ledger.n_rows < 1 or ledger.n_columns <= terms.offset:
        raise ValueError("at least one row and one column must be left.")
    return ledger


def _check_roster(roster: Roster, ledger: Ledger) -> None:
    n_new = 0 if ledger.arrived is None else ledger.arrived.y.size
    if len(roster.new) != (n_new if roster.trained is not None else 0):
        raise ValueError(f"there must be one key a new row; got {len(roster.new)} for {n_new}.")
    present = roster.present(ledger)
    if present is not None:
        as_keys(present)


def _matrix_in(name: str, arrays: Arrays) -> Matrix:
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


def _vector(name: str, arrays: Arrays, size: int) -> Array:
    vector = arrays[name]
    if vector.shape != (size,) or vector.dtype != np.float64 or not np.all(np.isfinite(vector)):
        raise ValueError(f"{name} must hold {size} finite numbers; got {vector.dtype} of shape {vector.shape}.")
    return vector


def _places(name: str, arrays: Arrays, size: int) -> Positions:
    places = arrays[name]
    if places.ndim != 1 or places.dtype != np.int64:
        raise ValueError(f"{name} must hold positions; got {places.dtype} of shape {places.shape}.")
    ordered = np.all(np.diff(places) > 0) and (not places.size or (places[0] >= 0 and places[-1] < size))
    if not ordered:
        raise ValueError(f"{name} must hold increasing positions below {size}.")
    return places.astype(np.intp)
