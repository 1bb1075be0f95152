"""``LiveModel``: a linear model whose data keeps changing, answered from certificates and trained only when it must be."""

import os
import threading
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from glru.after import Retraining
from glru.bounds import ScoreBounds, is_decided
from glru.changes import Change
from glru.linalg import Array, Matrix
from glru.live import digests, files, receipts
from glru.live.answers import (
    CertifiedPrediction,
    Settled,
    joined,
    undetermined,
)
from glru.live.history import ChangeEntry, ChangeKind, Entry, Reason, now
from glru.live.log import Log
from glru.live.roster import Key, Roster, as_keys
from glru.live.standing import Standing, count_weighty
from glru.live.terms import Terms
from glru.sklearn import adapt
from glru.solution import Solution
from glru.solvers import solve

P = ParamSpec("P")
R = TypeVar("R")


def _locked(method: Callable[Concatenate["LiveModel", P], R]) -> Callable[Concatenate["LiveModel", P], R]:
    """A method that one thread at a time is in."""

    @wraps(method)
    def call(self: "LiveModel", /, *arguments: P.args, **named: P.kwargs) -> R:
        with self.lock:
            return method(self, *arguments, **named)

    return call


@final
class LiveModel:
    """A linear model whose training data keeps changing.

    Changes are only noted, at the cost of the change. A query is answered from a certificate of what retraining on the
    present data would give: from the stored model as it is, then from Newton steps, and only where a queried label is
    still open by training, warm-started and stopped as soon as it is proven. For changed rows of a model without an
    unpenalised intercept the first of these costs no more than the change; otherwise it passes over the data once, and what
    was computed serves all queries until the next change.

    Threads may share a live model. Methods run one at a time, so that a change or a query waits for a training that is
    under way; attributes are read without waiting, each from one consistent state. To make several calls as one, hold
    ``live.lock``. Processes may not share a file: :meth:`save` refuses to replace what another one wrote.

    Parameters
    ----------
    estimator : estimator
        A linear model of scikit-learn or of this library, for two classes or a regression; fitted or not, it is only
        read.
    tol : float, default=1e-6
        Relative duality gap of :meth:`fit` and :meth:`refresh`.
    width : float, default=None
        Regression only: how wide the proven interval of a prediction may be. By default a thousandth of the standard
        deviation of the targets in :meth:`fit`.

    Attributes
    ----------
    history : tuple
        Every change, training and certificate, oldest first.
    revision : int
        The number of the stored model; every training makes a new one.
    lock : threading.RLock
        Held by whichever method is running; a thread that holds it may call any method.

    Examples
    --------
    >>> import numpy as np, glru
    >>> from sklearn.linear_model import LogisticRegression
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> y = np.where(X[:, 0] + 0.3 * X[:, 1] > 0, "yes", "no")
    >>> live = glru.LiveModel(LogisticRegression()).fit(X[:80], y[:80], keys=range(80))
    >>> removal = live.remove_rows(keys=[3, 17])
    >>> live.predict(X[80:84]).tolist() == y[80:84].tolist()
    True
    >>> live.revision  # no training but the first
    1
    >>> live.receipt(removal)["statement"]
    'model not yet updated'
    >>> live.refresh().receipt(removal)["statement"]
    'equals retraining to within r'
    """

    def __init__(self, estimator: Any, *, tol: float = 1e-6, width: float | None = None) -> None:
        if not 0.0 <= tol < np.inf:
            raise ValueError(f"tol must be a finite number >= 0; got {tol!r}.")
        if width is not None and not 0.0 < width < np.inf:
            raise ValueError(f"width must be a finite number above 0; got {width!r}.")
        self._estimator, self._tol = estimator, float(tol)
        self._given_width = None if width is None else float(width)
        self._present: Log | None = None
        self._tokens: dict[Path, tuple[str, ...]] = {}
        self.lock = threading.RLock()

    @_locked
    def fit(self, X: Any, y: Any, sample_weight: Any = None, keys: Any = None) -> "LiveModel":
        """Train on first data, of which a copy is kept; the history starts anew.

        Parameters
        ----------
        X, y, sample_weight : array
            The data.
        keys : sequence of str, int, float, bool or None, default=None
            One key a row, all different, to name rows by.
        """
        if self._estimator is None:
            raise ValueError("a loaded model keeps its data; make a new glru.LiveModel(estimator) to fit other data.")
        adapted = adapt(self._estimator, X, y, sample_weight)
        terms, first = Terms.of(adapted), adapted.problems[0]
        first.matrix.require_host("a live model keeps its data on the host")
        roster = Roster(None if keys is None else as_keys(keys, first.n_rows))
        problem = terms.problem(first.matrix.copy(), terms.targets(y, first.n_rows), first.sample_weight)
        if terms.classes is not None and 0 in count_weighty(problem.y, problem.sample_weight):
            raise ValueError("each class must have a row of weight above 0; got one without.")
        standing = Standing.trained(terms, solve(problem, tol=self._tol), roster, 1, exhausted=False)
        width = None
        if terms.classes is None:
            width = self._given_width or 1e-3 * (float(problem.y.std()) or 1.0)
        self._present = Log(standing, width).trained(standing, "fit")
        return self

    @_locked
    def add_rows(self, X: Any, y: Any, sample_weight: Any = None, *, keys: Any = None) -> ChangeEntry:
        """Add rows behind the present ones.

        Parameters
        ----------
        X, y, sample_weight : array
            Their data in the present columns; a frame's columns are matched by name.
        keys : sequence, default=None
            Their keys, where rows have keys.
        """
        before = self._standing
        after = before.with_rows(X, y, sample_weight, keys)
        new = None if after.roster.trained is None else after.roster.new[len(before.roster.new) :]
        return self._change(after, "add_rows", after.ledger.n_rows - before.ledger.n_rows, keys=new)

    @_locked
    def remove_rows(self, rows: Any = None, *, keys: Any = None) -> ChangeEntry:
        """Remove rows, named by their present positions or by their keys.

        Parameters
        ----------
        rows : sequence of int, default=None
            Positions among the present rows: trained ones that are left in their order, then added ones.
        keys : sequence, default=None
            Keys, instead of positions.

        Returns
        -------
        ChangeEntry
            What was removed; :meth:`receipt` takes it.
        """
        before = self._standing
        positions = before.roster.positions(rows, keys, before.ledger)
        if not positions.size:
            raise ValueError("name at least one row to remove; got none.")
        gone = before.ledger.rows(positions)
        after = before.without_rows(positions, gone)
        return self._change(
            after,
            "remove_rows",
            positions.size,
            keys=before.roster.named(positions, before.ledger),
            digests=tuple(digests.of_rows(gone.X, gone.y, gone.weight)),
            n_trained=int(np.count_nonzero((positions < before.ledger.n_kept_rows) & (gone.weight > 0.0))),
        )

    @_locked
    def add_columns(self, X: Any) -> ChangeEntry:
        """Add columns behind the present ones.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_rows, n_new)
            Their values in the present rows.
        """
        before = self._standing
        after = before.with_columns(X)
        count = after.n_columns - before.n_columns
        names = after.terms.column_names
        return self._change(after, "add_columns", count, columns=None if names is None else names[-count:])

    @_locked
    def remove_columns(self, columns: Any) -> ChangeEntry:
        """Remove columns.

        Parameters
        ----------
        columns : sequence of int or str
            Positions among the present columns, or names where the data came as a frame.
        """
        before = self._standing
        places = before.terms.columns(columns, before.ledger.n_columns)
        if not places.size:
            raise ValueError("name at least one column to remove; got none.")
        names = before.terms.column_names
        gone = None if names is None else tuple(names[j - before.terms.offset] for j in places)
        return self._change(before.without_columns(places), "remove_columns", places.size, columns=gone)

    @_locked
    def decision_bounds(self, X: Any) -> ScoreBounds:
        """Lower and upper bounds of the scores that retraining on the present data would give; never trains.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.
        """
        answer = self._standing.outlook.tightest(self._queries(X), self._settled)
        self._present = self._log.certified("decision_bounds", answer)
        return answer.bounds

    @_locked
    def predict(self, X: Any) -> NDArray[Any]:
        """What a model retrained on the present data would predict, trained only where that is open.

        Every label is proven. In a regression a prediction is the middle of a proven interval of at most ``width``.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.

        Raises
        ------
        UndeterminedError
            Some predictions are not proven by a training that went as far as float64 allows. Its ``rows`` are these
            queries; :meth:`predict_certified` returns the others.
        """
        found = self.predict_certified(X)
        if not found.determined.all():
            raise undetermined(found, self._width)
        return found.predictions

    @_locked
    def predict_certified(self, X: Any) -> CertifiedPrediction:
        """Predict as :meth:`predict` does, and say of every query whether its prediction is proven.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.

        Returns
        -------
        CertifiedPrediction
            Predictions, which of them are determined, and bounds of the scores.

        Examples
        --------
        The data is symmetric in the two columns, so the score of the second query is exactly 0: no bound can tell its sign.

        >>> import numpy as np, glru
        >>> from sklearn.linear_model import LogisticRegression
        >>> X = np.array([[1.0, 0.5], [0.5, 1.0], [-1.0, -0.5], [-0.5, -1.0]])
        >>> live = glru.LiveModel(LogisticRegression(fit_intercept=False)).fit(X, ["yes", "yes", "no", "no"])
        >>> live.predict_certified([[2.0, 1.0], [1.0, -1.0]]).determined.tolist()
        [True, False]
        """
        standing, queries, settled = self._standing, self._queries(X), self._settled
        answer = standing.outlook.ask(queries, settled)
        if answer.open.size and not (standing.is_fresh and standing.exhausted):
            solution, bounds = standing.outlook.train(queries[answer.open], settled, answer.open_bounds)
            self._train(solution, "predict", exhausted=solution.status != "stopped")
            answer = joined(answer, bounds, settled, "training", solution.certificate)
        self._present = self._log.certified("predict", answer)
        # A decided label is that of the lower end.
        scores = answer.bounds.lower.copy() if self._width is None else answer.bounds.middle
        scores[answer.open] = self._stored_scores(queries[answer.open])
        return CertifiedPrediction(standing.terms.labels(scores), answer.stage != "", answer.bounds)

    @_locked
    def needs_retraining(self, X: Any) -> Retraining:
        """Whether retraining would change what the stored model says of some queries; never trains.

        A regression's prediction counts as changed when it moves by more than ``width``.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.

        Returns
        -------
        Retraining
            ``verdict`` "yes", "no" or "undetermined", and the queries that would or could change.
        """
        queries = self._queries(X)
        answer = self._standing.outlook.ask(queries, self._settled)
        self._present = self._log.certified("needs_retraining", answer)
        return Retraining.of(answer.bounds, self._stored_scores(queries), self._width)

    @_locked
    def refresh(self) -> "LiveModel":
        """Train on the present data to ``tol``; does nothing where the stored model is that already."""
        standing = self._standing
        if not standing.is_fresh or (standing.solution.relative_gap > self._tol and not standing.exhausted):
            solution = standing.outlook.refreshed(self._tol)
            self._train(solution, "refresh", exhausted=solution.status == "stalled")
        return self

    @_locked
    def receipt(self, change: ChangeEntry, queries: Any = None, *, n_identical: int = 0) -> dict[str, Any]:
        """A deletion receipt of rows, as the model stands now; see docs/receipts.md and :func:`glru.verify_receipt`.

        Parameters
        ----------
        change : ChangeEntry
            What :meth:`remove_rows` returned.
        queries : array, default=None
            Queries for which the largest possible change of a score is stated.
        n_identical : int, default=0
            How many present rows are equal to a removed one and known to be others. With another number there is no
            receipt: a row that is still there looks the same.

        Returns
        -------
        dict
            The receipt, ready for ``json.dumps``.
        """
        standing = self._standing
        if not isinstance(change, ChangeEntry) or change != self._log.entry(change.number):
            raise ValueError(
                f"change must be an entry of this model's history, as remove_rows returns it; got {change!r}."
            )
        if change.kind != "remove_rows":
            raise ValueError(f"a receipt is for removed rows; got a change of kind {change.kind!r}.")
        self._log.check_removal(change)
        if standing.ledger.moves_columns:
            raise ValueError("a receipt needs a stored model with the present columns. Call refresh() first.")
        rows = None if queries is None else standing.terms.rows(queries, standing.ledger.n_columns, "queries")
        return receipts.issue(standing, change, rows, now(), n_identical)

    @_locked
    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything to a file: data, keys, model, pending changes, history. An old file is replaced at once.

        Parameters
        ----------
        path : str or path
            The file; by custom it ends in ``.npz``.
        overwrite : bool, default=False
            Whether to replace a file that this model did not load or save last, and to lose what it holds.

        Raises
        ------
        FileExistsError
            The file is not as this model last loaded or saved it: another process or model wrote it.
        """
        place, token = files.place(path), files.new_token()
        known = self._tokens.get(place, ())
        # The new file is this model's as soon as it is there, even if an interrupt keeps this call from returning.
        self._tokens[place] = (*known, token)
        files.save(path, self._saved, token, None if overwrite else known)
        self._tokens[place] = (token,)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LiveModel":
        """The model that :meth:`save` wrote; an error where the file is damaged or something else.

        Parameters
        ----------
        path : str or path
            The file.
        """
        saved, token = files.load(path)
        live = cls(None, tol=saved.tol, width=saved.width)
        live._restore(saved)
        live._tokens[files.place(path)] = (token,)
        return live

    @property
    def history(self) -> tuple[Entry, ...]:
        """Every change, training and certificate, oldest first."""
        return self._log.entries

    @property
    def revision(self) -> int:
        """The number of the stored model."""
        return self._standing.revision

    @property
    def solution(self) -> Solution:
        """The stored model with its proof, on the data of its training."""
        return self._standing.solution

    @property
    def pending(self) -> Change | None:
        """What happened since that training, as one change of its problem; None if nothing did."""
        standing = self._standing
        return None if standing.is_fresh else standing.ledger.change

    @property
    def keys(self) -> tuple[Key, ...] | None:
        """The keys of the present rows; None where rows have none."""
        standing = self._standing
        return standing.roster.present(standing.ledger)

    @property
    def n_rows(self) -> int:
        """Present rows."""
        return self._standing.ledger.n_rows

    @property
    def n_columns(self) -> int:
        """Present columns."""
        return self._standing.n_columns

    @property
    def classes(self) -> NDArray[Any] | None:
        """The two classes; None in a regression."""
        return self._standing.terms.classes

    @property
    def _log(self) -> Log:
        if self._present is None:
            raise ValueError("the live model has no data yet; call fit first.")
        return self._present

    @property
    def _standing(self) -> Standing:
        return self._log.standing

    @property
    def _width(self) -> float | None:
        return self._log.width

    @property
    def _settled(self) -> Settled:
        return partial(is_decided, width=self._width)

    @property
    def _saved(self) -> files.Saved:
        return files.Saved(self._standing, self.history, self._tol, self._width)

    def _restore(self, saved: files.Saved) -> None:
        self._present = Log(saved.standing, saved.width, list(saved.history), len(saved.history))

    def _queries(self, X: Any) -> Matrix:
        return self._standing.terms.rows(X, self._standing.ledger.n_columns, "queries")

    def _stored_scores(self, queries: Matrix) -> Array:
        return queries @ self._standing.stored_coef + self._standing.solution.intercept

    def _train(self, solution: Solution, reason: Reason, exhausted: bool) -> None:
        self._present = self._log.trained(self._standing.retrained(solution, exhausted), reason)

    def _change(self, standing: Standing, kind: ChangeKind, count: int, **details: Any) -> ChangeEntry:
        # One assignment takes the new data and its entry: an interrupt before it leaves both as they were.
        self._present, entry = self._log.changed(standing, kind, count, **details)
        return entry

    def __getstate__(self) -> dict[str, Any]:
        """What a file would hold, and the estimator; neither the lock nor anything that is computed again when needed."""
        with self.lock:
            fitted = self._present is not None
            return {
                "estimator": self._estimator,
                "tol": self._tol,
                "width": self._given_width,
                "tokens": dict(self._tokens),
                "arrays": files.pack(self._saved, "") if fitted else None,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["estimator"], tol=state["tol"], width=state["width"])
        self._tokens = state["tokens"]
        if state["arrays"] is not None:
            self._restore(files.unpack(state["arrays"]))

    def __repr__(self) -> str:
        log = self._present
        if log is None:
            return f"LiveModel({self._estimator!r})"
        standing = log.standing
        state = "fresh" if standing.is_fresh else "changed since"
        size = f"{standing.ledger.n_rows} rows x {standing.n_columns} columns"
        return f"LiveModel({size}, revision {standing.revision}, {state})"
