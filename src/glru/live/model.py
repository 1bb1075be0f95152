"""``LiveModel``: a linear model whose data keeps changing, answered from certificates and trained only when it must be."""

import os
import secrets
import threading
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from glru._options import check_call
from glru.after import Retraining
from glru.bounds import ScoreBounds, is_decided, predicted
from glru.changes import Change
from glru.linalg import Array, Matrix
from glru.live import receipts, storage
from glru.live.history import ChangeEntry, ChangeKind, Entry, Log, Query, Reason, current_time
from glru.live.queries import Answer, CertifiedPrediction, Decided, make_undetermined_error
from glru.live.state import Key, ModelSpec, Pending, State, TrainedKeys, as_keys, digest_rows
from glru.sklearn import adapt
from glru.solution import Solution
from glru.solvers import solve

SCORE_WIDTH = 1e-3
"""How wide the proven interval of a classifier's score may be: a probability is then known to within 1.3e-4."""

P = ParamSpec("P")
R = TypeVar("R")


def _lock_method(method: Callable[Concatenate["LiveModel", P], R]) -> Callable[Concatenate["LiveModel", P], R]:
    """A method that one thread at a time is in."""

    @wraps(method)
    def call(self: "LiveModel", /, *arguments: P.args, **named: P.kwargs) -> R:
        with self.lock:
            return method(self, *arguments, **named)

    return call


@final
class LiveModel:
    """A linear model whose training data keeps changing.

    A change is only recorded, at a cost proportional to its size. A query is answered by a certificate of what retraining on the
    present data would give: first from the stored model as it is, where that costs no more than the change (no unpenalised
    intercept), then from Newton steps, for the logistic and the squared loss. If a queried label is still open, the
    model is trained from a warm start until the label is proven. What was computed serves all queries until the
    next change.

    Threads may share a live model. Methods run one at a time, so that a change or a query waits for a training that is
    under way; attributes are read without waiting, each from one consistent state. To make several calls as one, hold
    ``live.lock``. Processes may not share a file: :meth:`save` refuses to replace what another one wrote.

    Parameters
    ----------
    estimator : estimator
        A linear model of scikit-learn or of this library: a classifier of two classes, a multinomial model, or a regression (also of counts and
        amounts). Fitted or not, it is only read.
    tol : float, default=1e-6
        Relative duality gap of :meth:`fit` and :meth:`refresh`.
    width : float, default=None
        How wide the proven interval of a number may be: of a regression's prediction, or of a classifier's score in
        :meth:`decision_function` and :meth:`predict_proba`. By default 0.001, in a regression times the standard deviation
        of the targets in :meth:`fit`.

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

    @check_call
    def __init__(self, estimator: Any, *, tol: float = 1e-6, width: float | None = None) -> None:
        if estimator is not None and not (hasattr(estimator, "fit") and hasattr(estimator, "get_params")):
            raise TypeError(
                f"a live model needs an estimator of scikit-learn or of this library; got {type(estimator).__name__}. "
                "Use for example glru.LiveModel(LogisticRegression())."
            )
        self._estimator, self._tol = estimator, float(tol)
        self._given_width = None if width is None else float(width)
        self._present: Log | None = None
        self._tokens: dict[Path, tuple[str, ...]] = {}
        self.lock = threading.RLock()

    @_lock_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None, keys: Any = None) -> "LiveModel":
        """Train on initial data, keep a copy of it, and start a new history.

        Parameters
        ----------
        X, y, sample_weight : array
            The data.
        keys : sequence of str, int, float, bool or None, default=None
            One key per row, all different, to name rows by.
        """
        if self._estimator is None:
            raise ValueError("a loaded model keeps its data; make a new glru.LiveModel(estimator) to fit other data.")
        adapted = adapt(self._estimator, X, y, sample_weight)
        spec, first = ModelSpec.from_adapted(adapted), adapted.problems[0]
        first.matrix.require_host("a live model keeps its data on the host")
        named = None if keys is None else TrainedKeys(as_keys(keys, first.n_rows))
        problem = spec.objective.problem(first.matrix.copy(), first.y.copy(), first.sample_weight.copy())
        if spec.classes is not None and 0 in spec.count_rows(problem.y, problem.sample_weight):
            raise ValueError("each class must have a row of weight above 0; got one without.")
        state = State.from_pending(spec, solve(problem, tol=self._tol), Pending(problem, named), 1, exhausted=False)
        scale = 1.0 if spec.classes is not None else float(problem.y.std()) or 1.0
        self._present = Log(state, self._given_width or SCORE_WIDTH * scale).record_training(state, "fit")
        return self

    @_lock_method
    def add_rows(self, X: Any, y: Any, sample_weight: Any = None, *, keys: Any = None) -> ChangeEntry:
        """Add rows after the present ones.

        Parameters
        ----------
        X, y, sample_weight : array
            Their data in the present columns; a frame's columns are matched by name.
        keys : sequence, default=None
            Their keys, where rows have keys.
        """
        before = self._state
        after = before.with_rows(X, y, sample_weight, keys)
        came = after.pending.new_rows[-1]
        return self._change(after, "add_rows", came.y.size, keys=came.keys)

    @_lock_method
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
        before = self._state
        positions = before.pending.find_positions(rows, keys)
        if not positions.size:
            raise ValueError("name at least one row to remove; got none.")
        gone = before.pending.take_rows(positions)
        return self._change(
            before.without_rows(positions, gone),
            "remove_rows",
            positions.size,
            keys=gone.keys,
            digests=tuple(digest_rows(gone.X, gone.y, gone.weight)),
            n_trained=int(np.count_nonzero((positions < before.pending.n_kept_rows) & (gone.weight > 0.0))),
        )

    @_lock_method
    def forget(self, keys: Any = None) -> ChangeEntry:
        """Forget the keys of removed rows.

        Afterwards neither the history nor a copy, a pickle or a file written from then on contains the keys. The entries of
        the changes stay, with the number of rows and their digests, so that receipts can still be issued. The *values* of
        rows that the stored model was trained on are kept until the next training, for example by :meth:`refresh`.

        Parameters
        ----------
        keys : sequence, default=None
            Keys of removed rows; all of them by default.

        Returns
        -------
        ChangeEntry
            How many keys were forgotten.

        Examples
        --------
        >>> import numpy as np, glru
        >>> from sklearn.linear_model import LogisticRegression
        >>> X = np.random.default_rng(0).normal(size=(40, 2))
        >>> live = glru.LiveModel(LogisticRegression()).fit(X, X[:, 0] > 0, keys=[f"person {k}" for k in range(40)])
        >>> removal = live.remove_rows(keys=["person 7"])
        >>> live.forget(["person 7"]).count
        1
        >>> live.history[removal.number].keys
        ()
        >>> live.refresh().receipt(removal)["statement"]
        'equals retraining to within r'
        """
        self._present, entry = self._log.forget(None if keys is None else as_keys(keys))
        return entry

    @_lock_method
    def add_columns(self, X: Any) -> ChangeEntry:
        """Add columns after the present ones.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_rows, n_new)
            Their values in the present rows.
        """
        before = self._state
        after = before.with_columns(X)
        count = after.n_columns - before.n_columns
        names = after.spec.column_names
        return self._change(after, "add_columns", count, columns=None if names is None else names[-count:])

    @_lock_method
    def remove_columns(self, columns: Any) -> ChangeEntry:
        """Remove columns.

        Parameters
        ----------
        columns : sequence of int or str
            Positions among the present columns, or names where the data came as a frame.
        """
        before = self._state
        places = before.spec.find_columns(columns, before.pending.n_columns)
        if not places.size:
            raise ValueError("name at least one column to remove; got none.")
        names = before.spec.column_names
        gone = None if names is None else tuple(names[j - before.spec.offset] for j in places)
        return self._change(before.without_columns(places), "remove_columns", places.size, columns=gone)

    @_lock_method
    def decision_bounds(self, X: Any) -> ScoreBounds:
        """Lower and upper bounds of the scores that retraining on the present data would give; never trains.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.
        """
        answer = self._state.proofs.ask_tightest(self._queries(X), self._decided)
        self._present = self._log.record_certificate("decision_bounds", answer)
        return answer.bounds

    @_lock_method
    def predict(self, X: Any) -> NDArray[Any]:
        """What a model retrained on the present data would predict, trained only where that is open.

        Every label is proven. In a regression a prediction (with a log link, a mean) is the middle of a proven interval of at most ``width``.

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
        if not found.decided.all():
            bounds, width = (
                (found.bounds, None) if self.classes_ is not None else (self._numbers(found.bounds), self._log.width)
            )
            raise make_undetermined_error(bounds, found.decided, width)
        return found.predictions

    @_lock_method
    def predict_certified(self, X: Any) -> CertifiedPrediction:
        """Predict as :meth:`predict` does, and say of every query whether its prediction is proven.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.

        Returns
        -------
        CertifiedPrediction
            Predictions, which of them are decided, and bounds of the scores (with a log link, of the logarithms of the means).

        Examples
        --------
        The data is symmetric in the two columns, so the score of the second query is exactly 0: no bound can tell its sign.

        >>> import numpy as np, glru
        >>> from sklearn.linear_model import LogisticRegression
        >>> X = np.array([[1.0, 0.5], [0.5, 1.0], [-1.0, -0.5], [-0.5, -1.0]])
        >>> live = glru.LiveModel(LogisticRegression(fit_intercept=False)).fit(X, ["yes", "yes", "no", "no"])
        >>> live.predict_certified([[2.0, 1.0], [1.0, -1.0]]).decided.tolist()
        [True, False]
        """
        classes, queries, before = self.classes_, self._queries(X), self.revision
        answer = self._prove(queries, self._decided, "predict")
        if classes is None:
            found = self._numbers(answer.bounds).middle
            found[answer.open] = self._stored_numbers(queries[answer.open])
        else:
            places = answer.bounds.predicted
            places[answer.open] = predicted(self._stored_scores(queries[answer.open]))
            found = classes[places]
        stages = np.where(answer.stage == "", "undetermined", answer.stage)
        return CertifiedPrediction(found, answer.bounds, stages, classes, self.revision - before)

    @_lock_method
    def decision_function(self, X: Any) -> Array:
        """The scores that a classifier retrained on the present data would give, each to within half of ``width``.

        A score is the middle of a proven interval of at most ``width``; the model is trained if that is necessary.
        :meth:`decision_bounds` gives the intervals themselves, as tight as they are without training.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.

        Returns
        -------
        array of shape (n_queries,) or (n_queries, n_classes)
            Above 0 for the second class in ``classes_``; with more than two classes one score per class, measured from their mean.

        Raises
        ------
        UndeterminedError
            Some intervals could not be made that narrow in float64.

        Examples
        --------
        >>> import numpy as np, glru
        >>> from sklearn.linear_model import LogisticRegression
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> live = glru.LiveModel(LogisticRegression()).fit(X, X[:, 0] > 0)
        >>> removal = live.remove_rows([0, 1])
        >>> retrained = LogisticRegression(tol=1e-10).fit(X[2:], X[2:, 0] > 0)
        >>> bool(np.abs(live.decision_function(X) - retrained.decision_function(X)).max() < 0.0006)
        True
        """
        return self._scores(X, "decision_function")

    @_lock_method
    def predict_proba(self, X: Any) -> Array:
        """The probabilities that a classifier retrained on the present data would give, each to within ``width / 8`` (``width / 4`` with more than two classes).

        They are those of the scores of :meth:`decision_function`; the logistic function has a slope of at most 1/4.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries in the present columns.

        Returns
        -------
        array of shape (n_queries, n_classes)
            One column per class, in the order of ``classes_``.

        Raises
        ------
        AttributeError
            The loss has no probabilities: only the logistic one has.
        UndeterminedError
            Some scores could not be proven to within ``width`` in float64.

        Examples
        --------
        >>> import numpy as np, glru
        >>> from sklearn.linear_model import LogisticRegression
        >>> X = np.random.default_rng(0).normal(size=(50, 2))
        >>> live = glru.LiveModel(LogisticRegression()).fit(X, X[:, 0] > 0)
        >>> removal = live.remove_rows([0, 1])
        >>> live.predict_proba(X[:2]).round(2)
        array([[0.4 , 0.6 ],
               [0.13, 0.87]])
        """
        loss = self._state.spec.objective.loss
        if not loss.probabilities:
            raise AttributeError(f"predict_proba needs the logistic loss; got {loss!r}. Use decision_function.")
        scores = self._scores(X, "predict_proba")
        if loss.several:
            return np.asarray(softmax(scores, axis=1))
        likely = expit(scores)
        return np.column_stack([1.0 - likely, likely])

    @_lock_method
    def needs_retraining(self, X: Any) -> Retraining:
        """Whether retraining would change the stored model's answers to some queries; never trains.

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
        answer = self._state.proofs.ask(queries, self._decided)
        self._present = self._log.record_certificate("needs_retraining", answer)
        if self.classes_ is not None:
            return Retraining.of(answer.bounds, self._stored_scores(queries), None)
        return Retraining.of(self._numbers(answer.bounds), self._stored_numbers(queries), self._log.width)

    @_lock_method
    def refresh(self) -> "LiveModel":
        """Train on the present data to ``tol``; does nothing where the stored model is that already."""
        state = self._state
        if not state.pending.empty or (not state.solution.reached(self._tol) and not state.exhausted):
            solution = state.proofs.retrain(self._tol)
            self._train(solution, "refresh", exhausted=solution.status == "stalled")
        return self

    @_lock_method
    def receipt(self, change: ChangeEntry, queries: Any = None, *, n_identical: int = 0) -> dict[str, Any]:
        """A deletion receipt of rows, as the model stands now; see docs/receipts.md and :func:`glru.verify_receipt`.

        Parameters
        ----------
        change : ChangeEntry
            What :meth:`remove_rows` returned.
        queries : array, default=None
            Queries for which the largest possible change of a score is stated.
        n_identical : int, default=0
            How many present rows equal a removed one but are known to be different rows. With any other number no receipt is
            issued, because a row that was not removed looks the same.

        Returns
        -------
        dict
            The receipt, ready for ``json.dumps``.
        """
        removal, state = self._log.find_removal(change), self._state
        if state.pending.moves_columns:
            raise ValueError("a receipt needs a stored model with the present columns. Call refresh() first.")
        rows = None if queries is None else self._queries(queries)
        return receipts.issue(state, removal, rows, current_time(), n_identical)

    @_lock_method
    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write everything to a file: data, keys, model, pending changes, history. An old file is replaced at once.

        Parameters
        ----------
        path : str or path
            The file, usually with a name that ends in ``.npz``.
        overwrite : bool, default=False
            Whether to replace a file that this model did not load or save last, and to lose what it holds.

        Raises
        ------
        FileExistsError
            The file is not as this model last loaded or saved it: another process or model wrote it.
        """
        place, token = storage.resolve_path(path), secrets.token_hex(16)
        known = self._tokens.get(place, ())
        # The new file is this model's as soon as it is there, even if an interrupt keeps this call from returning.
        self._tokens[place] = (*known, token)
        storage.save(path, self._saved, token, None if overwrite else known)
        self._tokens[place] = (token,)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "LiveModel":
        """The model that :meth:`save` wrote; an error if the file is damaged or not a live model.

        Parameters
        ----------
        path : str or path
            The file.
        """
        saved, token = storage.load(path)
        live = cls(None, tol=saved.tol, width=saved.width)
        live._restore(saved)
        live._tokens[storage.resolve_path(path)] = (token,)
        return live

    @property
    def history(self) -> tuple[Entry, ...]:
        """Every change, training and certificate, oldest first."""
        return self._log.entries

    @property
    def revision(self) -> int:
        """The number of the stored model."""
        return self._state.revision

    @property
    def solution(self) -> Solution:
        """The stored model with its proof, on the data of its training."""
        return self._state.solution

    @property
    def pending(self) -> Change | None:
        """What happened since that training, as one change of its problem; None if nothing did."""
        pending = self._state.pending
        return None if pending.empty else pending.change

    @property
    def keys(self) -> tuple[Key, ...] | None:
        """The keys of the present rows; None where rows have none."""
        return self._state.pending.present_keys

    @property
    def n_rows(self) -> int:
        """Number of present rows."""
        return self._state.pending.n_rows

    @property
    def n_columns(self) -> int:
        """Number of present columns."""
        return self._state.n_columns

    @property
    def classes_(self) -> NDArray[Any] | None:
        """The classes in sorted order; None in a regression."""
        return self._state.spec.classes

    @property
    def _log(self) -> Log:
        if self._present is None:
            raise ValueError("the live model has no data yet; call fit first.")
        return self._present

    @property
    def _state(self) -> State:
        return self._log.state

    @property
    def _decided(self) -> Decided:
        """Whether bounds prove a prediction: a label, or a number to within ``width``."""
        if self.classes_ is not None:
            return lambda bounds: bounds.decided if isinstance(bounds, ScoreBounds) else is_decided(*bounds)
        return lambda bounds: is_decided(*self._numbers(ScoreBounds(*bounds)), self._log.width)

    def _numbers(self, bounds: ScoreBounds) -> ScoreBounds:
        """Bounds of the numbers that a regression predicts: its scores, or with a log link the means."""
        loss = self._state.spec.objective.loss
        return bounds if loss.link == "identity" else ScoreBounds(*bounds.means(loss))

    def _stored_numbers(self, queries: Matrix) -> Array:
        """What the stored model's scores stand for in a regression."""
        scores = self._stored_scores(queries)
        return np.exp(scores) if self._state.spec.objective.loss.link == "log" else scores

    @property
    def _saved(self) -> storage.Saved:
        return storage.Saved(self._state, self.history, self._tol, self._log.width)

    def _restore(self, saved: storage.Saved) -> None:
        self._present = Log(saved.state, saved.width, list(saved.history), len(saved.history))

    def _queries(self, X: Any) -> Matrix:
        return self._state.spec.convert_rows(X, self._state.pending.n_columns, "queries")

    def _stored_scores(self, queries: Matrix) -> Array:
        return np.asarray(queries @ self._state.stored_coef.T + self._state.solution.intercept)

    def _scores(self, X: Any, query: Query) -> Array:
        """The middles of proven intervals of at most ``width``."""
        if self.classes_ is None:
            raise AttributeError(f"{query} needs a classifier; this is a regression. Use predict.")
        width = self._log.width
        answer = self._prove(self._queries(X), lambda bounds: is_decided(*bounds, width=width), query)
        if answer.open.size:
            raise make_undetermined_error(answer.bounds, answer.stage != "", width)
        return answer.bounds.middle

    def _prove(self, queries: Matrix, decided: Decided, query: Query) -> Answer:
        """Bounds of queried scores that are decided, except where a training to the limits of float64 left them open."""
        state = self._state
        answer, solution = state.proofs.prove(queries, decided, not (state.pending.empty and state.exhausted))
        if solution is not None:
            self._train(solution, "predict", exhausted=solution.status != "stopped")
        self._present = self._log.record_certificate(query, answer)
        return answer

    def _train(self, solution: Solution, reason: Reason, exhausted: bool) -> None:
        self._present = self._log.record_training(self._state.with_solution(solution, exhausted), reason)

    def _change(self, state: State, kind: ChangeKind, count: int, **details: Any) -> ChangeEntry:
        # One assignment takes the new data and its entry: an interrupt before it leaves both as they were.
        self._present, entry = self._log.record_change(state, kind, count, **details)
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
                "arrays": storage.pack(self._saved, "") if fitted else None,
            }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["estimator"], tol=state["tol"], width=state["width"])
        self._tokens = state["tokens"]
        if state["arrays"] is not None:
            self._restore(storage.unpack(state["arrays"]))

    def __repr__(self) -> str:
        log = self._present
        if log is None:
            return f"LiveModel({self._estimator!r})"
        pending, size = log.state.pending, f"{log.state.pending.n_rows} rows x {log.state.n_columns} columns"
        return f"LiveModel({size}, revision {log.state.revision}, {'fresh' if pending.empty else 'changed since'})"
