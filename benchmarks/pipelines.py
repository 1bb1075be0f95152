"""Leave-one-out and folds of whole pipelines against scikit-learn's brute force: speed, trainings, differences.

Every data set is raw: columns in their own units, where the table says so with a tenth of the values missing and with categories. All steps are
fitted again without each row, or in each fold, on both sides. scikit-learn's time is that of its faster solver (lbfgs or newton-cholesky, as
they come) on some random rows (seed 0), scaled up to all of them. Both sides count processor time and take turns, each time is the shortest of three; leave-one-out is timed
for labels, for what ``glru.loocv`` does if nothing is said, and for scores to 1e-6. Differences are measured on as many rows against the same pipeline converged to a tolerance of 1e-11.
"""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from sklearn import model_selection
from sklearn.base import clone
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, RobustScaler, StandardScaler

import glru
from benchmarks.data import SHAPES, folder, load
from benchmarks.timing import print_table

MAX_ROWS = 40
"""Rows that scikit-learn is timed and converged on."""

TIMED_ROWS = 5
"""Of these, rows on which its solvers are timed."""


@dataclass(frozen=True)
class Case:
    """A data set and the pipeline that is asked about."""

    name: str
    X: Any
    y: Any
    steps: Any
    model: Any

    @property
    def size(self) -> str:
        """Rows and columns, those of the model where these are others."""
        n_columns = clone(self.steps).fit_transform(self.X, self.y).shape[1]
        shown = f"{self.X.shape[0]} x {self.X.shape[1]}"
        return shown if n_columns == self.X.shape[1] else f"{shown} ({n_columns})"

    @property
    def solvers(self) -> list[Any]:
        """The pipeline with each of scikit-learn's solvers that are timed."""
        if not isinstance(self.model, LogisticRegression):
            return [make_pipeline(self.steps, self.model)]
        names = ["lbfgs"] if self.X.shape[1] > 1000 else ["lbfgs", "newton-cholesky"]
        return [make_pipeline(self.steps, clone(self.model).set_params(solver=name, max_iter=1000)) for name in names]

    @property
    def tight(self) -> Any:
        """The pipeline converged as far as float64 allows."""
        model = clone(self.model)
        if isinstance(model, LogisticRegression):
            wide = self.X.shape[1] > 1000
            model.set_params(solver="newton-cg" if wide else "newton-cholesky", tol=1e-11, max_iter=10_000)
        return make_pipeline(self.steps, model)

    @property
    def method(self) -> str:
        """What is compared: scores, or predictions of a regression."""
        return "decision_function" if isinstance(self.model, LogisticRegression) else "predict"


def with_holes(X: Any, share: float = 0.1) -> Any:
    """Some values removed, drawn at random."""
    X = np.array(X, dtype=np.float64)
    X[np.random.default_rng(1).random(X.shape) < share] = np.nan
    return X


def with_categories(X: Any, columns: list[int], share: float = 0.1) -> pd.DataFrame:
    """A frame with holes in which some columns are text."""
    table = pd.DataFrame(with_holes(X, share), columns=[f"c{j}" for j in range(np.shape(X)[1])])
    for j in columns:
        known = table.iloc[:, j].notna()
        table[f"c{j}"] = (
            table[f"c{j}"].map(lambda value: f"v{value:g}", na_action="ignore").astype(object).where(known, None)
        )
    return table


def patients(n_rows: int) -> tuple[pd.DataFrame, Any]:
    """A table as they come: ages, heavy-tailed laboratory values, a binary column, two categories, holes."""
    rng = np.random.default_rng(2)
    age = rng.normal(60.0, 12.0, n_rows).round()
    values = np.exp(rng.normal(size=(n_rows, 6)) * [0.3, 0.5, 1.0, 1.5, 0.2, 0.8] + [0, 3, 5, 2, 7, 1])
    smokes = (rng.random(n_rows) < 0.2).astype(np.float64)
    ward, sex = rng.integers(0, 6, n_rows), rng.integers(0, 2, n_rows)
    score = 0.04 * (age - 60) + 0.6 * np.log(values[:, 3]) + smokes + 0.3 * ward + rng.logistic(size=n_rows)
    numbers = with_holes(np.column_stack([age, values, smokes]))
    table = pd.DataFrame(numbers, columns=["age", *(f"lab{j}" for j in range(6)), "smokes"])
    table["ward"] = np.where(rng.random(n_rows) < 0.05, None, np.array([f"W{k}" for k in range(6)])[ward]).astype(
        object
    )
    table["sex"] = np.array(["f", "m"])[sex]
    return table, (score > np.quantile(score, 0.7)).astype(int)


def mixed() -> Any:
    """Numbers filled and scaled, text filled and encoded."""
    text = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    return make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), make_column_selector(dtype_include="number")),
        (text, make_column_selector(dtype_exclude="number")),
    )


def cases() -> Iterator[Case]:
    """All cases; those of files only where there is a folder of data sets."""
    logistic, scaler = LogisticRegression(), StandardScaler()
    filled = make_pipeline(SimpleImputer(), StandardScaler())
    X, y = load_breast_cancer(return_X_y=True)
    yield Case("breast_cancer", X, y, scaler, logistic)
    yield Case("breast_cancer", X, y, MinMaxScaler(), logistic)
    yield Case("breast_cancer", X, y, RobustScaler(), logistic)
    yield Case("breast_cancer, balanced", X, y, scaler, LogisticRegression(class_weight="balanced"))
    yield Case("breast_cancer, holes", with_holes(X), y, filled, logistic)
    X, y = load_diabetes(return_X_y=True, scaled=False)
    yield Case("diabetes", X, y, scaler, Ridge())
    yield Case("diabetes, holes", with_holes(X), y, filled, Ridge())
    X, y = load_wine(return_X_y=True)
    yield Case("wine, three classes", X, y, scaler, logistic)
    table, y = patients(1000)
    yield Case("patients, categories, holes", table, y, mixed(), logistic)
    rng = np.random.default_rng(3)
    for name in ("gen log-normal", "gen outliers", "gen units", "gen genes"):
        X, y = SHAPES[name](rng)
        yield Case(name, X, y, scaler, logistic)
    yield Case("gen genes, holes", with_holes(X, 0.02), y, filled, logistic)
    if folder() is None:
        print(
            "\nheart, australian, spambase, cpu_act, dlbcl and arcene: skipped; set GLRU_DATA to the folder with the datasets."
        )
        return
    for name, columns in (("heart", [2, 6, 10, 12]), ("australian", [3, 4, 5, 11])):
        X, y = load(name, "none")
        yield Case(name, X, y, scaler, logistic)
        yield Case(f"{name}, categories, holes", with_categories(X, columns), y, mixed(), logistic)
    X, y = load("spambase", "none")
    yield Case("spambase", X, y, scaler, logistic)
    yield Case("spambase, holes", with_holes(X), y, filled, logistic)
    X, y = load("reg_cpu_act", "none")
    yield Case("cpu_act", X, y, scaler, Ridge())
    for name in ("dlbcl_shipp", "arcene"):
        X, y = load(name, "none")
        yield Case(name, np.asarray(X, dtype=np.float64), y, scaler, logistic)
    X, y = load("dlbcl_shipp", "none")
    yield Case("dlbcl_shipp, holes", with_holes(X, 0.02), y, filled, logistic)


def run(only: str = "") -> None:
    """Print the tables; ``only``: of data sets whose names contain this."""
    loo, folds = [], []
    for case in cases():
        if only in case.name:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                loo.append(_leave_one_out(case))
                folds.append(_folds(case))
            print(" | ".join(loo[-1]), " || ", " | ".join(folds[-1]), file=sys.stderr, flush=True)
    header = [
        "data",
        "rows x columns",
        "steps",
        "solver",
        "labels",
        "default",
        "scores to 1e-6",
        "trainings",
        "refits",
        "far",
        "labels",
    ]
    print_table("Leave-one-out: scikit-learn's time in units of ours", header, loo)
    header = ["data", "5 folds", "refits", "far"]
    print_table("5 folds: the same", header, folds)


def _steps(case: Case) -> str:
    from glru.sklearn.preprocessing import step_names

    return ", ".join(step_names(case.steps))


def _seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _in_turn(works: list[Callable[[], object]], repeats: int = 3) -> list[float]:
    """The shortest times of some works, which take turns."""
    best = [np.inf] * len(works)
    for _ in range(repeats):
        best = [min(old, _seconds(work)) for old, work in zip(best, works, strict=True)]
    return best


def _rows_of(X: Any, rows: Any) -> Any:
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def _without(case: Case, pipeline: Any, row: int) -> Any:
    """What the pipeline fitted without a row says of it."""
    kept = np.flatnonzero(np.arange(len(case.y)) != row)
    fitted = clone(pipeline).fit(_rows_of(case.X, kept), case.y[kept])
    return getattr(fitted, case.method)(_rows_of(case.X, [row]))[0]


def _leave_one_out(case: Case) -> list[str]:
    """One line of the table."""
    n_rows, pipeline = len(case.y), case.solvers[0]
    rows = np.sort(np.random.default_rng(0).choice(n_rows, min(MAX_ROWS, n_rows), replace=False))
    widths = {"labels": {"width": "labels"}, "default": {}, "scores": {"width": 1e-6}}
    if case.method == "predict":
        del widths["labels"]
    ours = [partial(glru.loocv, pipeline, case.X, case.y, **options) for options in widths.values()]
    first = ours[-1]()

    def naive(solver: Any) -> None:
        for row in rows[:TIMED_ROWS]:
            _without(case, solver, int(row))

    works = [*ours, *(partial(naive, solver) for solver in case.solvers)]
    seconds = _in_turn(works)
    theirs = np.array(seconds[len(ours) :]) * n_rows / min(TIMED_ROWS, n_rows)
    fastest = case.solvers[int(np.argmin(theirs))][-1]
    ratios = dict(zip(widths, theirs.min() / np.array(seconds[: len(ours)]), strict=True))
    tight = np.array([_without(case, case.tight, int(row)) for row in rows])
    differ = "-"
    if case.method != "predict":
        labels = ours[0]().labels[rows]
        classes = np.unique(case.y)
        expected = classes[(tight > 0).astype(int) if tight.ndim == 1 else tight.argmax(axis=1)]
        differ = str(int(np.sum(labels != expected)))
    return [
        case.name,
        case.size,
        _steps(case),
        getattr(fastest, "solver", "-"),
        *(f"{ratios[name]:.0f}" if name in ratios else "-" for name in ("labels", "default", "scores")),
        str(first.n_trainings),
        str(first.n_refits),
        f"{np.abs(first.scores[rows] - tight).max():.0e}",
        differ,
    ]


def _folds(case: Case) -> list[str]:
    cv = model_selection.KFold(5, shuffle=True, random_state=0)
    ours = partial(glru.cross_val_predict, case.solvers[0], case.X, case.y, cv=cv, method=case.method)
    theirs = [
        partial(model_selection.cross_val_predict, solver, case.X, case.y, cv=cv, method=case.method)
        for solver in case.solvers
    ]
    found = ours(return_result=True)
    seconds = _in_turn([ours, *theirs])
    expected = model_selection.cross_val_predict(case.tight, case.X, case.y, cv=cv, method=case.method)
    far = np.abs(ours() - expected).max()
    return [case.name, f"{min(seconds[1:]) / seconds[0]:.2f}", str(found.n_refits), f"{far:.0e}"]
