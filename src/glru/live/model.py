"""``LiveModel``: a linear model whose data keeps changing, answered from certificates and trained only when it must be."""

import os
import warnings
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from glru._numerics import Array, Matrix
from glru.adapters import adapt
from glru.after import Retraining
from glru.changes import Change
from glru.live import digests, files, receipts
from glru.live.answers import LIMIT, Settled, joined, retraining, signs_settled, width_settled
from glru.live.history import ChangeEntry, ChangeKind, Entry, Reason, now
from glru.live.log import Log
from glru.live.roster import Key, Roster, as_keys
from glru.live.standing import Standing, count_weighty
from glru.live.terms import Terms
from glru.solution import Solution
from glru.solvers import solve


class UndeterminedWarning(UserWarning):
    """A prediction that no training in float64 can prove."""


@final
class LiveModel:
    """A linear model whose training data keeps changing.

    Changes are only noted, at the cost of the change. A query is answered from a certificate of what retraining on the
    present data would give: from the stored model as it is, then from Newton steps, and only where a queried label is
    still open by training, warm-started and stopped as soon as it is proven. For changed rows of a model without an
    unpenalised intercept the first of these costs no more than the change; otherwise it passes over the data once, and what
    was computed serves all queries until the next change.

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
        if first.on_device:
            raise ValueError(
                f"a live model keeps its data on the host; got X on {first.arrays.device}. Give it as a NumPy array."
            )
        roster = Roster(None if keys is None else as_keys(keys, first.n_rows))
        data = first.X.copy(order="K") if isinstance(first.X, np.ndarray) else first.X.copy()
        problem = terms.problem(data, terms.targets(y, first.n_rows), first.sample_weight)
        if terms.classes is not None and 0 in count_weighty(problem.y, problem.sample_weight):
            raise ValueError("each class must have a row of weight above 0; got one without.")
        standing = Standing.trained(terms, solve(problem, tol=self._tol), roster, 1, exhausted=False)
        width = None
        if terms.classes is None:
            width = self._given_width or 1e-3 * (float(problem.y.std()) or 1.0)
        self._present = Log(standing, width).trained(standing, "fit")
        return self

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

    def decision_bounds(self, X: Any) -> tuple[Array, Array]:
        """Lower and upper bounds of the scores that retraining on the present data would give; never trains.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.
        """
        answer = self._standing.outlook.tightest(self._queries(X), self._settled)
        self._present = self._log.certified("decision_bounds", answer)
        return answer.lower, answer.upper

    def predict(self, X: Any) -> NDArray[Any]:
        """What a model retrained on the present data would predict, trained only where that is open.

        Labels are proven, except those of queries that lie on the boundary as far as float64 can tell, which are warned
        of. In a regression a prediction is the middle of a proven interval of at most ``width``.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.
        """
        standing, queries, settled = self._standing, self._queries(X), self._settled
        answer = standing.outlook.ask(queries, settled)
        if answer.open.size and not (standing.is_fresh and standing.exhausted):
            solution, bounds = standing.outlook.train(queries[answer.open], settled, answer.open_bounds)
            self._train(solution, "predict", exhausted=solution.status != "stopped")
            answer = joined(answer, bounds, settled, "training", solution.certificate)
        self._present = self._log.certified("predict", answer)
        middle = np.where(answer.lower > 0.0, 1.0, -1.0) if self._width is None else 0.5 * (answer.lower + answer.upper)
        if answer.open.size:
            middle[answer.open] = self._stored_scores(queries[answer.open])
            warnings.warn(
                f"{answer.open.size} of {middle.size} predictions are not proven as far as float64 goes: their labels are on "
                "the boundary, or their intervals wider than width. They are those of the trained model.",
                UndeterminedWarning,
                stacklevel=2,
            )
        return standing.terms.labels(middle)

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
        return retraining(answer, self._stored_scores(queries), self._width)

    def refresh(self) -> "LiveModel":
        """Train on the present data to ``tol``; does nothing where the stored model is that already."""
        standing = self._standing
        if not standing.is_fresh or (standing.solution.relative_gap > self._tol and not standing.exhausted):
            solution = standing.outlook.refreshed(self._tol)
            self._train(solution, "refresh", exhausted=solution.status == "stalled" or self._tol <= LIMIT)
        return self

    def receipt(self, change: ChangeEntry, queries: Any = None) -> dict[str, Any]:
        """A deletion receipt of rows, as the model stands now; see docs/receipts.md and :func:`glru.verify_receipt`.

        Parameters
        ----------
        change : ChangeEntry
            What :meth:`remove_rows` returned.
        queries : array, default=None
            Queries for which the largest possible change of a score is stated.

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
        if standing.ledger.moves_columns:
            raise ValueError("a receipt needs a stored model with the present columns. Call refresh() first.")
        rows = None if queries is None else standing.terms.rows(queries, standing.ledger.n_columns, "queries")
        return receipts.issue(standing, change, rows, now())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file: data, keys, model, pending changes, history. An old file is replaced at once.

        Parameters
        ----------
        path : str or path
            The file; by custom it ends in ``.npz``.
        """
        files.save(path, files.Saved(self._standing, self.history, self._tol, self._width))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LiveModel":
        """The model that :meth:`save` wrote; an error where the file is damaged or something else.

        Parameters
        ----------
        path : str or path
            The file.
        """
        saved = files.load(path)
        live = cls(None, tol=saved.tol, width=saved.width)
        live._present = Log(saved.standing, saved.width, list(saved.history), len(saved.history))
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
        return None if self._standing.is_fresh else self._standing.ledger.change

    @property
    def keys(self) -> tuple[Key, ...] | None:
        """The keys of the present rows; None where rows have none."""
        return self._standing.roster.present(self._standing.ledger)

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
        return signs_settled if self._width is None else width_settled(self._width)

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

    def __repr__(self) -> str:
        if self._present is None:
            return f"LiveModel({self._estimator!r})"
        state = "fresh" if self._standing.is_fresh else "changed since"
        return f"LiveModel({self.n_rows} rows x {self.n_columns} columns, revision {self.revision}, {state})"
