"""``GLRUClassifier``: a linear classifier that keeps the proof of its fit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets

from glru import _inputs
from glru.after import Retraining
from glru.bounds import predicted
from glru.linalg import Array, RawMatrix, move_like, namespace, to_host
from glru.losses import Loss, Multinomial
from glru.losses.multinomial import softmax
from glru.sklearn.adapted import probabilities_of
from glru.sklearn.estimators.base import LinearModel, validated
from glru.solvers.api import Solver


class Classifier(ClassifierMixin, LinearModel):  # type: ignore[misc]
    """What the classifiers share: labels and probabilities from scores."""

    def decision_function(self, X: Any) -> Array:
        """Scores: one per row for two classes, one per row and class for more.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        """
        return self._scores(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of every query.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        """
        scores = self._scores(X)
        return move_like(to_host(self.classes_)[predicted(to_host(scores))], scores)

    @available_if(lambda self: _is_logistic(self))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Array:
        """The probability of every class; with the logistic and the multinomial loss only.

        More than two classes with the logistic loss: one-vs-rest, normalised.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        """
        scores = self._scores(X)
        host = to_host(scores)
        joint = host.ndim == 2 and _is_multinomial(self)
        return move_like(softmax(host) if joint else probabilities_of(host), scores)

    @available_if(lambda self: _is_logistic(self))  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: Any) -> Array:
        """The logarithm of ``predict_proba``.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        """
        likely = self.predict_proba(X)
        return namespace(likely).log(likely)

    def needs_retraining(self, X: Any, add: Any = None, remove: Any = None) -> Retraining:
        """Whether refitting after a change would give some queries other labels; never trains.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        add : tuple (X, y) or (X, y, sample_weight), or AddRows, default=None
            Rows that come.
        remove : sequence of int, default=None
            Positions of rows that go.

        Returns
        -------
        Retraining
            ``verdict`` "yes", "no" or "undetermined", and the queries that would or could change.
        """
        return self._needs_retraining(X, add, remove, None)

    def _validated(self, X: Any, y: Any, **options: Any) -> tuple[RawMatrix, Any]:
        X, y = validated(self, X, y=y, accept_sparse="csr", dtype=np.float64, **options)
        check_classification_targets(y)
        classes = np.unique(y)
        if classes.size < 2:
            raise ValueError(f"y must have at least two classes; got one class: {classes[0]!r}.")
        self.classes_ = move_like(classes, X)
        return X, y


class GLRUClassifier(Classifier):
    r"""A linear classifier that keeps the proof of its fit and answers what happens when its data changes.

    With ``C`` it minimises :math:`C \sum_i s_i \ell(y_i, z_i) + \tfrac12 \|w\|^2 + \kappa \|w\|_1`, with ``lam``
    :math:`\tfrac{1}{\sum s} \sum_i s_i \ell(y_i, z_i) + \tfrac{\lambda}{2} \|w\|^2 + \kappa \|w\|_1`, where
    :math:`z_i = x_i^\top w + b` and the intercept is not penalised. More than two classes: one-vs-rest, or one problem of all classes with
    ``loss="multinomial"``, as scikit-learn's ``LogisticRegression`` has it.

    Parameters
    ----------
    loss : {"logistic", "multinomial", "squared_hinge", "smoothed_hinge", "hinge"} or Loss, default="logistic"
        The loss of one row. ``"multinomial"`` is the logistic loss where there are two classes.
    C : float, default=1.0
        Weight of the losses, as in scikit-learn.
    lam : float, default=None
        Strength of the squares in the paper's scaling; instead of ``C``.
    kappa : float, default=0.0
        Strength of the absolute values of the coefficients.
    fit_intercept : bool, default=True
        Whether the model has an unpenalised intercept.
    class_weight : dict or "balanced", default=None
        Factors of the sample weights by class.
    tol : float, default=1e-6
        Relative duality gap at which a training ends.
    solver : str, default="auto"
        As in :func:`glru.solve`.
    max_iter : int, default=None
        Most iterations of a training; the default depends on the solver.
    keep_data : bool, default=True
        Whether the model keeps its training data, by reference, and with it the answers to ``loocv``, ``after`` and
        ``needs_retraining``. A pickle of the model then holds every training row; with ``keep_data=False`` it holds none.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes.
    coef_, intercept_ : array of shape (1 or n_classes, n_columns), (1 or n_classes,)
        The model.
    n_iter_, dual_gap_, certificate_, solutions_
        Iterations, duality gap, its proof, and the solutions themselves; the last two need ``keep_data``.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> model = glru.GLRUClassifier(C=0.1).fit(X[:500], y[:500])
    >>> model.predict(X[500:503]), model.loocv().n_errors
    (array([1, 0, 1]), 10)
    >>> model.needs_retraining(X[500:], remove=[3, 17]).verdict
    'no'
    """

    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        C: float = 1.0,
        lam: float | None = None,
        kappa: float = 0.0,
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float = 1e-6,
        solver: Solver = "auto",
        max_iter: int | None = None,
        keep_data: bool = True,
    ) -> None:
        super().__init__(loss, kappa, fit_intercept, tol, solver, max_iter, keep_data)
        self.C = C
        self.lam = lam
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "GLRUClassifier":
        """Train on data.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_rows, n_columns)
            Data.
        y : array of shape (n_rows,)
            Labels.
        sample_weight : array of shape (n_rows,), default=None
            Weights of the rows.
        """
        X, y = self._validated(X, y)
        adapted = self._adapt(self, X, y, checked_weight(sample_weight, X))
        self._keep(adapted, self._train(adapted))
        return self


def checked_weight(sample_weight: Any, X: RawMatrix) -> Any:
    """Sample weights by scikit-learn's rules; None stays None."""
    from sklearn.utils.validation import _check_sample_weight

    if sample_weight is None:
        return None
    _inputs.refuse_dates(_inputs.as_array(sample_weight, "sample_weight"), "sample_weight")
    return _check_sample_weight(sample_weight, X, dtype=np.float64)


def _is_multinomial(model: Any) -> bool:
    return isinstance(model.loss, Multinomial) or (isinstance(model.loss, str) and model.loss == "multinomial")


def _is_logistic(model: Any) -> bool:
    if type(model.loss).__name__ == "Logistic" or model.loss == "logistic" or _is_multinomial(model):
        return True
    raise AttributeError(
        f"predict_proba needs loss='logistic' or 'multinomial'; got {model.loss!r}. Use decision_function."
    )
