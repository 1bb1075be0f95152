"""``GLRUClassifier`` and ``GLRURegressor``: linear models that keep the proof of their fit, and answer questions about it."""

import operator
from abc import abstractmethod
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import get_config
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone
from sklearn.pipeline import make_pipeline
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from glru import _inputs
from glru._options import BoundName, CandidateName, LOOCVMethod, Solver, check_call, check_options, suggest_options
from glru.after import After, Retraining
from glru.bounds import predicted
from glru.cascade import Report
from glru.certificate import Certificate
from glru.changes import AddRows, Change, RemoveRows
from glru.linalg import Array, RawMatrix, as_matrix, move_like, namespace, to_host, use_threads
from glru.losses import Hinge, Loss, Multinomial
from glru.losses.logistic import softmax
from glru.model_selection.loocv import Width
from glru.model_selection.result import LOOCVResult
from glru.sklearn.adapt import Adapted, adapt, probabilities_of
from glru.sklearn.drop_ins import loocv_adapted
from glru.sklearn.preprocessing import OUTPUT, as_double
from glru.sklearn.questions import change_models
from glru.solution import Solution
from glru.solvers import solve


class LinearModel(BaseEstimator):  # type: ignore[misc]
    """A linear model that keeps the proof of its fit and, unless ``keep_data`` is false, the data it was fitted to."""

    coef_: Array
    intercept_: Any
    preprocessing: Any = None
    _known = True
    """Whether the public functions accept this estimator together with its data."""

    @abstractmethod
    def _validate(self, X: Any, y: Any, **options: Any) -> tuple[RawMatrix, Any]:
        """Data and targets, checked by scikit-learn with the given ``options``."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train on data.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_rows, n_columns)
            Data.
        y : array of shape (n_rows,)
            Labels or targets.
        sample_weight : array of shape (n_rows,), default=None
            Weights of the rows.
        """
        check_options(type(self).__name__, self.get_params(deep=False))
        X, y = self._validate(X, y)
        adapted = self._adapt(self, X, y, check_weight(sample_weight, X))
        self._keep(adapted, self._train(adapted))
        return self

    def _adapt(self, model: Any, X: RawMatrix, y: Any, sample_weight: Any) -> Adapted:
        """The problems of an estimator (this one, or one of a grid), with the names of the columns."""
        if self.preprocessing is not None:
            return adapt(make_pipeline(clone(self.preprocessing), model), X, y, sample_weight)
        adapted = adapt(model, X, y, sample_weight)
        names = getattr(self, "feature_names_in_", None)
        return adapted if names is None else adapted.with_names(tuple(map(str, names)))

    def _train(self, adapted: Adapted, start: tuple[Solution, ...] | None = None) -> tuple[Solution, ...]:
        starts = start or (None,) * len(adapted.problems)
        return tuple(
            solve(problem, tol=self.tol, solver=self.solver, start=point, max_iter=self.max_iter)
            for problem, point in zip(adapted.problems, starts, strict=True)
        )

    def _keep(self, adapted: Adapted, solutions: tuple[Solution, ...]) -> None:
        if self.keep_data:
            self.adapted_, self.solutions_ = adapted, solutions
        else:
            # A model that was fitted before may hold the data of that fit.
            for name in ("adapted_", "solutions_"):
                self.__dict__.pop(name, None)
            self._dual_gap = sum(solution.gap for solution in solutions)
        self.n_iter_ = max(solution.n_iter for solution in solutions)
        coef, intercept = adapted.coefficients(tuple(solution.point for solution in solutions))
        if self.preprocessing is not None:
            self.preprocessing_ = None if adapted.preprocessing is None else adapted.preprocessing.fitted
        there = adapted.problems[0].arrays
        self.coef_, self.intercept_ = there.put(coef), there.put(intercept)

    @property
    def dual_gap_(self) -> float:
        """Proven upper bound of how far the objective (summed over the classes) is above its optimum."""
        check_is_fitted(self)
        return sum(solution.gap for solution in self.solutions_) if hasattr(self, "solutions_") else self._dual_gap

    @property
    def certificate_(self) -> Certificate | tuple[Certificate, ...]:
        """The certificate from which all bounds are computed, rounding included; one per class if there are more than two."""
        self._require_data("certificate_", "glru.certify(model, X, y)")
        found = tuple(solution.certificate for solution in self.solutions_)
        return found[0] if len(found) == 1 else found

    def _require_data(self, what: str, instead: str) -> None:
        check_is_fitted(self)
        if not hasattr(self, "solutions_"):
            raise ValueError(
                f"{what} needs the training data, which this model does not keep (keep_data=False). "
                + (f"Use {instead}, or fit with keep_data=True." if self._known else "Fit with keep_data=True.")
            )

    @check_call
    def after(
        self,
        change: Change,
        *,
        candidate: CandidateName = "auto",
        bound: BoundName = "auto",
        max_steps: int | None = None,
        max_seconds: float | None = None,
    ) -> After:
        """What is proven about this model when its data changes, without retraining.

        Parameters
        ----------
        change : Change
            What happens to the data, for example ``glru.RemoveRows([3])``.
        candidate, bound, max_steps, max_seconds
            As in :func:`glru.after`.

        Returns
        -------
        After
        """
        self._require_data("after", "glru.after(model, change, X=X, y=y)")
        return change_models(self.adapted_, self.solutions_, change, candidate, bound, max_steps, max_seconds)

    @check_call
    def loocv(
        self,
        *,
        method: LOOCVMethod = "certified",
        bound: BoundName = "auto",
        width: Width = None,
        tol: float = 1e-6,
        max_seconds: float | None = None,
        max_memory: int | None = None,
        checkpoint: str | Path | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        progress: bool | Report = False,
    ) -> LOOCVResult:
        """Certified leave-one-out cross-validation of this model.

        Parameters
        ----------
        method, bound, width, tol, max_seconds, max_memory, checkpoint, n_jobs, verbose, progress
            As in :func:`glru.loocv`.

        Returns
        -------
        LOOCVResult
        """
        self._require_data("loocv", "glru.loocv(model, X, y)")
        with use_threads(n_jobs):
            return loocv_adapted(
                self.adapted_,
                self.solutions_,
                tol,
                method=method,
                bound=bound,
                width=width,
                max_seconds=max_seconds,
                max_memory=max_memory,
                checkpoint=checkpoint,
                progress=progress or verbose > 0,
            )

    def needs_retraining(
        self, X: Any, within: float | None = None, *, add: Any = None, remove: Any = None
    ) -> Retraining:
        """Whether refitting after a change would give some queries other labels or predictions; never trains.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        within : float, default=None
            How far a prediction may move and still count as the same; for a regression only, and needed there.
        add : tuple (X, y) or (X, y, sample_weight), or AddRows, default=None
            Rows to add.
        remove : sequence of int, default=None
            Positions of rows to remove.

        Returns
        -------
        Retraining
            ``verdict`` "yes", "no" or "undetermined", and the queries that would or could change.
        """
        self._require_data("needs_retraining", "glru.after(model, change, X=X, y=y).needs_retraining(queries)")
        steps: list[Change] = [] if remove is None else [RemoveRows(remove)]
        if add is not None:
            steps.append(add if isinstance(add, AddRows) else AddRows(*add))
        if not steps:
            raise ValueError("needs_retraining asks about a change: give rows to add, to remove, or both.")
        return self.after(reduce(operator.add, steps)).needs_retraining(X, within)

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        X = validate_input(self, X, reset=False, accept_sparse="csr", dtype=np.float64)
        steps = None if self.preprocessing is None else self.preprocessing_
        matrix = as_matrix(X) if steps is None else _inputs.as_matrix(steps.transform(as_double(X)), OUTPUT)[0]
        coef, intercept = np.atleast_2d(to_host(self.coef_)), np.atleast_1d(to_host(self.intercept_))
        put = matrix.arrays.put
        scores = matrix @ put(coef.T) + put(intercept)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "solutions_" in state:
            # What a solution has cached since the fit is not part of it, and need not be something pickle can take.
            state["solutions_"] = tuple(replace(solution) for solution in state["solutions_"])
        return state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # Data on a device is trained by Newton's method: the hinge, several scores and an L1 part need the host.
        host = (
            self.loss in ("hinge", "multinomial")
            if isinstance(self.loss, str)
            else isinstance(self.loss, Hinge | Multinomial)
        )
        tags.array_api_support = not host and self.kappa == 0.0
        return tags


def keep_arguments(estimator: Any, arguments: dict[str, Any]) -> None:
    """Keep the arguments of an estimator's constructor as they are, which is all that scikit-learn lets it do."""
    vars(estimator).update({name: value for name, value in arguments.items() if name != "self"})


def validate_input(estimator: Any, X: Any, **options: Any) -> Any:
    """Data as checked by scikit-learn.

    Arrays of other namespaces stay what they are where scikit-learn's ``array_api_dispatch`` is on; targets are copied to the host.
    """
    # scikit-learn looks at neither: it drops masks, and makes numbers of dates.
    if getattr(estimator, "preprocessing", None) is not None:
        return _check_targets_only(estimator, X, options)
    _inputs.refuse_masks(X, "X")
    _inputs.refuse_masks(options.get("y"), "y")
    _inputs.refuse_dates(X, "X")
    if get_config().get("array_api_dispatch", False):
        options["dtype"] = namespace(X).float64
        if "y" in options:
            options["y"] = to_host(options["y"])
    return validate_data(estimator, X, **options)


def _check_targets_only(estimator: Any, X: Any, options: dict[str, Any]) -> Any:
    """Data as given, since the steps of the estimator check it, and targets as checked by scikit-learn."""
    reset = options.get("reset", True)
    if "y" not in options:
        return validate_data(estimator, X, reset=reset, skip_check_array=True)
    y = column_or_1d(to_host(options["y"]), dtype=np.float64 if options.get("y_numeric") else None, warn=True)
    check_consistent_length(X, y)
    return validate_data(estimator, X, y, reset=reset, skip_check_array=True)


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

        For more than two classes with the logistic loss, one-vs-rest probabilities are normalised.

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

    def _validate(self, X: Any, y: Any, **options: Any) -> tuple[RawMatrix, Any]:
        X, y = validate_input(self, X, y=y, accept_sparse="csr", dtype=np.float64, **options)
        check_classification_targets(y)
        classes = np.unique(y)
        if classes.size < 2:
            raise ValueError(f"y must have at least two classes; got one class: {classes[0]!r}.")
        self.classes_ = move_like(classes, X)
        return X, y


class GLRUClassifier(Classifier):
    r"""A linear classifier that keeps the proof of its fit and predicts the effect of changes to its data.

    With ``C`` it minimises :math:`C \sum_i s_i \ell(y_i, z_i) + \tfrac12 \|w\|^2 + \kappa \|w\|_1`, with ``lam``
    :math:`\tfrac{1}{\sum s} \sum_i s_i \ell(y_i, z_i) + \tfrac{\lambda}{2} \|w\|^2 + \kappa \|w\|_1`, where
    :math:`z_i = x_i^\top w + b` and the intercept is not penalised. More than two classes: one-vs-rest, or one problem of all classes with
    ``loss="multinomial"``, as in scikit-learn's ``LogisticRegression``.

    Parameters
    ----------
    loss : {"logistic", "multinomial", "squared_hinge", "smoothed_hinge", "hinge"} or Loss, default="logistic"
        The loss of one row. ``"multinomial"`` is the logistic loss for two classes.
    C : float, default=1.0
        Weight of the losses, as in scikit-learn.
    lam : float, default=None
        Strength of the squared penalty in the paper's scaling; replaces ``C``.
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

    @suggest_options
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
        keep_arguments(self, locals())


def check_weight(sample_weight: Any, X: RawMatrix) -> Any:
    """Sample weights, checked by scikit-learn; None stays None."""
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


class Regressor(RegressorMixin, LinearModel):  # type: ignore[misc]
    """What the regressors share: scores are predictions."""

    def predict(self, X: Any) -> Array:
        """The prediction for every query.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        """
        return self._scores(X)

    def _validate(self, X: Any, y: Any, **options: Any) -> tuple[RawMatrix, Any]:
        X, y = validate_input(self, X, y=y, accept_sparse="csr", dtype=np.float64, y_numeric=True, **options)
        return X, y

    def _keep(self, adapted: Adapted, solutions: tuple[Solution, ...]) -> None:
        super()._keep(adapted, solutions)
        self.coef_, self.intercept_ = self.coef_[0, :], float(self.intercept_[0])


class GLRURegressor(Regressor):
    r"""A linear regression that keeps the proof of its fit and predicts the effect of changes to its data.

    The objective is that of :class:`glru.GLRUClassifier` with a loss of the residual; with the squared loss
    :math:`\ell = (y - z)^2 / 2`, ``C`` is ``1 / alpha`` of scikit-learn's ``Ridge``.

    Parameters
    ----------
    loss : {"squared", "huber"} or Loss, default="squared"
        The loss of one row.
    C, lam, kappa, fit_intercept, tol, solver, max_iter, keep_data
        As in :class:`glru.GLRUClassifier`.

    Attributes
    ----------
    coef_, intercept_ : array of shape (n_columns,), float
        The model.
    n_iter_, dual_gap_, certificate_, solutions_
        As in :class:`glru.GLRUClassifier`.

    Examples
    --------
    >>> import glru
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = glru.GLRURegressor(C=10.0).fit(X, y)
    >>> model.needs_retraining(X, within=5.0, remove=[0]).verdict
    'no'
    """

    @suggest_options
    def __init__(
        self,
        loss: str | Loss = "squared",
        *,
        C: float = 1.0,
        lam: float | None = None,
        kappa: float = 0.0,
        fit_intercept: bool = True,
        tol: float = 1e-6,
        solver: Solver = "auto",
        max_iter: int | None = None,
        keep_data: bool = True,
    ) -> None:
        keep_arguments(self, locals())
