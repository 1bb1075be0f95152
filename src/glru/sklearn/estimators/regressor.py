"""``GLRURegressor``: a linear regression that keeps the proof of its fit."""

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin

from glru.after import Retraining
from glru.linalg import Array, RawMatrix
from glru.losses import Loss
from glru.sklearn.adapted import Adapted
from glru.sklearn.estimators.base import LinearModel, validated
from glru.sklearn.estimators.classifier import checked_weight
from glru.solution import Solution
from glru.solvers.api import Solver


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

    def needs_retraining(self, X: Any, within: float, add: Any = None, remove: Any = None) -> Retraining:
        """Whether refitting after a change would move some predictions by more than ``within``; never trains.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_queries, n_columns)
            Queries.
        within : float
            How far a prediction may move and still count as the same.
        add : tuple (X, y) or (X, y, sample_weight), or AddRows, default=None
            Rows that come.
        remove : sequence of int, default=None
            Positions of rows that go.

        Returns
        -------
        Retraining
            ``verdict`` "yes", "no" or "undetermined", and the queries that would or could change.
        """
        return self._needs_retraining(X, add, remove, within)

    def _validated(self, X: Any, y: Any, **options: Any) -> tuple[RawMatrix, Any]:
        X, y = validated(self, X, y=y, accept_sparse="csr", dtype=np.float64, y_numeric=True, **options)
        return X, y

    def _keep(self, adapted: Adapted, solutions: tuple[Solution, ...]) -> None:
        super()._keep(adapted, solutions)
        self.coef_, self.intercept_ = self.coef_[0, :], float(self.intercept_[0])


class GLRURegressor(Regressor):
    r"""A linear regression that keeps the proof of its fit and answers what happens when its data changes.

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
        super().__init__(loss, kappa, fit_intercept, tol, solver, max_iter, keep_data)
        self.C = C
        self.lam = lam

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "GLRURegressor":
        """Train on data.

        Parameters
        ----------
        X : array, sparse matrix or frame of shape (n_rows, n_columns)
            Data.
        y : array of shape (n_rows,)
            Targets.
        sample_weight : array of shape (n_rows,), default=None
            Weights of the rows.
        """
        X, y = self._validated(X, y)
        adapted = self._adapt(self, X, y, checked_weight(sample_weight, X))
        self._keep(adapted, self._train(adapted))
        return self
