"""Estimators beside what they minimise, written a second time: no adapter of the library takes part in the exact answers."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge, RidgeClassifier
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import glru
from glru.verify.retraining import retrain
from tests.attack.generators import unscaled_rows
from tests.cases import l1

DIGITS = 40

ROUNDED = 1e-9
"""Behind a scaler the exact data is only known up to the rounding of the scaled columns: margins below this are skipped."""


@dataclass(frozen=True, eq=False)
class Model:
    """An estimator and its objective."""

    estimator: Any
    loss: glru.losses.Loss
    quadratic: float
    absolute: float = 0.0
    scaling: str = "sum"
    intercept: bool = True
    constant: float | None = None
    scaled: bool = False

    @property
    def regression(self) -> bool:
        """Whether the targets are numbers."""
        return isinstance(self.estimator, Ridge | ElasticNet | glru.GLRURegressor)

    def problem(self, X: np.ndarray, y: np.ndarray) -> glru.Problem:
        """The objective on data; targets are numbers, or -1 and +1."""
        if self.constant is not None:
            X = np.column_stack([np.full(len(X), self.constant), X])
        penalty: glru.penalties.Penalty
        if self.quadratic == 0.0 == self.absolute:
            penalty = glru.L2(np.zeros(X.shape[1]))
        else:
            penalty = glru.ElasticNet(self.quadratic, self.absolute) if self.absolute else glru.L2(self.quadratic)
        return glru.Problem(X, y, self.loss, penalty, self.intercept, self.scaling)

    def exact_scores(self, X: np.ndarray, y: np.ndarray, queries: np.ndarray) -> list[Any] | None:
        """Exact scores of queries in a model of rows with numbers or -1 and +1; None where no optimum is found."""
        extra = 0.0
        if self.scaled:
            scaler = StandardScaler().fit(X)
            X, queries, extra = scaler.transform(X), scaler.transform(queries), ROUNDED
        truth = retrain(self.problem(X, y), DIGITS)
        if truth is None:
            return None
        if self.constant is not None:
            queries = np.column_stack([np.full(len(queries), self.constant), queries])
        return [(value, off + extra * (1 + abs(value))) for value, off in truth.scores(queries)]


def some_strength(random: np.random.Generator) -> float:
    """``C`` or ``alpha``."""
    return float(10.0 ** random.uniform(-3.0, 3.0))


def classifier(random: np.random.Generator, two: bool = True, live: bool = False) -> Model:
    """A classifier, of two classes or of several; for a live model neither wrapped nor behind a scaler."""
    C, intercept = some_strength(random), bool(random.random() < 0.7)
    kinds = ["svc", "ridge", "glru", "glru mean"]
    kinds += ["logistic", "logistic", "liblinear", "elastic"] if two else ["rest"]
    kinds += [] if live else ["pipeline"]
    kinds = [kind for kind in kinds if not (live and kind == "ridge")] if live else kinds
    match str(random.choice(kinds)):
        case "logistic":
            return Model(
                LogisticRegression(C=C, fit_intercept=intercept), glru.Logistic(), 1.0 / C, intercept=intercept
            )
        case "liblinear":
            scale = float(random.choice([1.0, 10.0]))
            estimator = LogisticRegression(C=C, solver="liblinear", intercept_scaling=scale)
            return Model(estimator, glru.Logistic(), 1.0 / C, intercept=False, constant=scale)
        case "elastic":
            ratio = 0.5
            estimator = LogisticRegression(C=C, **l1(ratio), solver="saga", fit_intercept=intercept)
            if "penalty" in estimator.get_params() and estimator.penalty == "l2":
                estimator.set_params(penalty="elasticnet")
            return Model(estimator, glru.Logistic(), 0.5 / C, 0.5 / C, intercept=intercept)
        case "svc":
            name = str(random.choice(["hinge", "squared_hinge"]))
            loss = glru.Hinge() if name == "hinge" else glru.SquaredHinge()
            estimator = LinearSVC(C=C, loss=name, fit_intercept=intercept)
            return Model(estimator, loss, 1.0 / C, intercept=False, constant=1.0 if intercept else None)
        case "ridge":
            return Model(RidgeClassifier(alpha=C, fit_intercept=intercept), glru.Squared(), C, intercept=intercept)
        case "rest":
            estimator = OneVsRestClassifier(LogisticRegression(C=C, fit_intercept=intercept))
            return Model(estimator, glru.Logistic(), 1.0 / C, intercept=intercept)
        case "pipeline":
            inner: Any = LogisticRegression(C=C) if two else OneVsRestClassifier(LogisticRegression(C=C))
            if not two:
                inner = glru.GLRUClassifier(C=C)
            return Model(make_pipeline(StandardScaler(), inner), glru.Logistic(), 1.0 / C, scaled=True)
        case kind:
            losses = (glru.Logistic(), glru.SquaredHinge(), glru.SmoothedHinge(0.25), glru.Hinge())
            loss = losses[random.integers(len(losses))]
            kappa = float(random.choice([0.0, 0.0, 0.25]))
            # An absolute value beside a hinge is trained by proximal steps, for minutes where columns differ in size.
            kappa = kappa if isinstance(loss, glru.Logistic) else 0.0
            if kind == "glru":
                estimator = glru.GLRUClassifier(loss, C=C, kappa=kappa, fit_intercept=intercept)
                return Model(estimator, loss, 1.0 / C, kappa / C, intercept=intercept)
            estimator = glru.GLRUClassifier(loss, lam=1e-2 / C, kappa=kappa, fit_intercept=intercept)
            return Model(estimator, loss, 1e-2 / C, kappa, "mean", intercept)


def regressor(random: np.random.Generator) -> Model:
    """A regression."""
    alpha, intercept = some_strength(random), bool(random.random() < 0.7)
    match str(random.choice(["ridge", "elastic", "glru"])):
        case "ridge":
            return Model(Ridge(alpha=alpha, fit_intercept=intercept), glru.Squared(), alpha, intercept=intercept)
        case "elastic":
            estimator = ElasticNet(alpha=alpha, l1_ratio=0.5, fit_intercept=intercept)
            return Model(estimator, glru.Squared(), alpha * 0.5, alpha * 0.5, "mean", intercept)
    loss = glru.Huber(0.5) if random.random() < 0.6 else glru.Squared()
    estimator = glru.GLRURegressor(loss, C=alpha, fit_intercept=intercept)
    return Model(estimator, loss, 1.0 / alpha, intercept=intercept)


def labelled(random: np.random.Generator, n_classes: int, live: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Rows as they come and labels, or numbers where there is one class; tall or wide."""
    n = int(random.choice([10, 14, 20] if live else [12, 18, 24, 36]))
    d = int(random.choice([1, 2, 3, 5, 8, 24]))
    X, z = unscaled_rows(random, n, d)
    if n_classes == 1:
        return X, z * 10.0 ** random.choice([-3, 0, 0, 4])
    cuts = np.quantile(z, np.linspace(0.0, 1.0, n_classes + 1)[1:-1])
    return X, np.array(["a", "b", "c"])[np.searchsorted(cuts, z)]
