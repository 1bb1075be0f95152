"""``after``: of a solution, or of an estimator with its data."""

from typing import Any, overload

from glru.adapters import adapt, is_estimator
from glru.after.bounds import After, BoundName, CandidateName, after_solution
from glru.after.models import ModelAfter, after_models
from glru.changes import Change
from glru.solution import Solution
from glru.solvers import solve


@overload
def after(model: Solution, change: Change, candidate: CandidateName = "auto", bound: BoundName = "auto") -> After: ...


@overload
def after(
    model: Any,
    change: Change,
    candidate: CandidateName = "auto",
    bound: BoundName = "auto",
    *,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    tol: float = 1e-6,
) -> ModelAfter: ...


def after(
    model: Any,
    change: Change,
    candidate: CandidateName = "auto",
    bound: BoundName = "auto",
    *,
    X: Any = None,
    y: Any = None,
    sample_weight: Any = None,
    tol: float = 1e-6,
) -> After | ModelAfter:
    """Prove bounds on the model that retraining on changed data would give, without retraining.

    Parameters
    ----------
    model : Solution or estimator
        The trained model. It need not have converged: the bounds widen, they do not fail. Or one of scikit-learn's linear
        models (or this library's), which is trained on the data in ``X`` and ``y``.
    change : Change
        What happens to the data, for example ``glru.RemoveRows([3]) + glru.AddColumns(Z)``.
    candidate : {"auto", "carry", "newton"}, default="auto"
        Where the bounds are centred. ``"carry"``: the old optimum, at a cost in proportion to the change.
        ``"newton"``: up to three exact Newton steps of the changed problem, far tighter. ``"auto"``: both, where a
        Newton step applies and its system is small enough to solve directly.
    bound : {"auto", "primal", "dual", "local"}, default="auto"
        ``"primal"`` and ``"dual"``: the paper's Primal-SCB and Dual-SCB. ``"local"``: the self-concordance
        certificate (logistic or squared loss with an L2 penalty; covers an intercept and ``lam = 0``).
        ``"auto"``: the intersection of all that apply.
    X, y, sample_weight : array
        The data of an estimator, before the change.
    tol : float, default=1e-6
        Relative gap of an estimator's training.

    Returns
    -------
    After or ModelAfter
        Bounds of scores, labels, coefficients and dual variables; a ``ModelAfter`` for an estimator.

    Notes
    -----
    Rows in blocks can be removed, added, or removed and then added. The bounds are those of the local certificate after up to
    three Newton steps, a pass over the data each.

    Examples
    --------
    >>> import numpy as np, glru
    >>> from sklearn.datasets import load_breast_cancer
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X = (X - X.mean(axis=0)) / X.std(axis=0)
    >>> solution = glru.solve(glru.Problem(X[:500], y[:500], penalty=glru.L2(0.1)))
    >>> out = glru.after(solution, glru.RemoveRows([3, 17]))
    >>> out.determination_rate(X[500:])
    1.0
    >>> from sklearn.linear_model import LogisticRegression
    >>> out = glru.after(LogisticRegression(C=0.1), glru.RemoveRows([3, 17]), X=X[:500], y=y[:500])
    >>> out.needs_retraining(X[500:]).verdict
    'no'
    """
    if not is_estimator(model):
        return after_solution(model, change, candidate, bound)
    if X is None or y is None:
        raise ValueError(
            f"an estimator does not keep its data; got no X or no y for {type(model).__name__}. "
            "Call glru.after(estimator, change, X=X, y=y)."
        )
    adapted = adapt(model, X, y, sample_weight)
    solutions = tuple(solve(problem, tol=tol) for problem in adapted.problems)
    return after_models(adapted, solutions, change, candidate, bound)
