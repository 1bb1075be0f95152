"""Pipelines from raw data to held-out scores: steps fitted again in 40 digits, models trained in 40 digits.

What is proven is the optimum on the columns that the steps fitted to all rows make in float64, under the scales of the steps fitted to
the train rows alone. Here these are computed from the raw data in 40 digits, by other formulas than the library's. Filled values
and class weights are numbers of float64; they are held against those of 40 digits, and taken as they are in the models.
"""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.impute import SimpleImputer
from sklearn.linear_model import ElasticNet, LogisticRegression, Ridge, RidgeClassifier
from sklearn.model_selection import KFold, LeaveOneOut
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import LinearSVC

import glru
from glru.verify.precise import make_context, precise, scale_columns
from glru.verify.retraining import retrain, retrain_precise
from tests.attack.cases import DIGITS, Answer
from tests.core import adapt

Exact = tuple[Any, Any]


@dataclass
class Column:
    """A column on its way through the steps: ``(x - shift) / scale``, x the raw value or what fills its place."""

    mp: Any
    raw: list[Any]
    train: Sequence[int]
    shift: Any
    scale: Any
    fill: Any = None

    def made(self) -> list[Any]:
        """What the steps so far make of the train rows, sorted, without missing values."""
        values = (self.raw[k] if self.raw[k] is not None else self.fill for k in self.train)
        return sorted((value - self.shift) / self.scale for value in values if value is not None)

    def divide(self, shift: Any, scale: Any) -> None:
        """Behind a step that takes off a shift and divides by a scale, by nothing where that is zero."""
        self.shift = self.shift + self.scale * shift
        self.scale = self.scale * (scale if scale != 0 else self.mp.one)

    def through(self, step: Any) -> None:
        """Fit one step."""
        mp, made = self.mp, self.made()
        mean = mp.fsum(made) / len(made)
        if isinstance(step, StandardScaler):
            spread = mp.sqrt(mp.fsum((value - mean) ** 2 for value in made) / len(made)) if step.with_std else mp.one
            self.divide(mean if step.with_mean else mp.zero, spread)
        elif isinstance(step, MinMaxScaler):
            start, end = (mp.mpf(edge) for edge in step.feature_range)
            width = (made[-1] - made[0] if made[-1] > made[0] else mp.one) / (end - start)
            self.divide(made[0] - start * width, width)
        elif isinstance(step, MaxAbsScaler):
            self.divide(mp.zero, max(map(abs, made)))
        elif isinstance(step, RobustScaler):
            low, high = (self.quantile(made, mp.mpf(percent) / 100) for percent in step.quantile_range)
            middle = self.quantile(made, mp.mpf(1) / 2) if step.with_centering else mp.zero
            # Quantiles that differ by the rounding of a mean that is filled in are equal in scikit-learn's arithmetic.
            apart = high - low > 8.0 * np.finfo(float).eps * max(abs(low), abs(high))
            self.divide(middle, high - low if apart else mp.zero)
        elif self.fill is None:
            self.fill = self.shift + self.scale * self.statistic(step, made, mean)

    def statistic(self, step: SimpleImputer, made: list[Any], mean: Any) -> Any:
        """What an imputer fills in."""
        if step.strategy == "mean":
            return mean
        if step.strategy == "median":
            return self.quantile(made, self.mp.mpf(1) / 2)
        if step.strategy == "most_frequent":
            return max(sorted(set(made)), key=made.count)
        return self.mp.mpf(step.fill_value)

    def quantile(self, made: list[Any], share: Any) -> Any:
        """By linear interpolation."""
        place = share * (len(made) - 1)
        low = int(self.mp.floor(place))
        return made[low] + (place - low) * (made[min(low + 1, len(made) - 1)] - made[low])


def hostile_column(random: np.random.Generator, n: int) -> np.ndarray:
    """Numbers in units of their own."""
    x = random.normal(size=n)
    kinds = (
        lambda: x,
        lambda: x * 10.0 ** random.integers(-8, 9),
        lambda: x + 10.0 ** random.integers(0, 6),
        lambda: np.exp(3.0 * x),
        lambda: (random.random(n) < 0.2) * random.choice([1.0, 3.3, -2.0]),
        lambda: np.eye(n)[random.integers(n)] * random.choice([1e-3, 1.0, 5.0]) + random.choice([0.0, 1.1, 1e4]),
        lambda: random.integers(0, 3, n).astype(float),
        lambda: np.full(n, random.choice([0.0, 0.1, 7.7])),
        lambda: random.standard_cauchy(n),
        lambda: np.round(x, 1),
    )
    return kinds[random.integers(len(kinds))]()


def hostile_steps(random: np.random.Generator, missing: bool) -> list[Any]:
    """One or two scalers, and an imputer where it is needed."""
    scalers = (
        StandardScaler(),
        StandardScaler(),
        StandardScaler(with_mean=False),
        StandardScaler(with_std=False),
        MinMaxScaler(),
        MinMaxScaler(feature_range=(-1, 3)),
        MaxAbsScaler(),
        RobustScaler(),
        RobustScaler(quantile_range=(10.0, 90.0), with_centering=False),
    )
    steps = [scalers[k] for k in random.integers(len(scalers), size=random.integers(1, 3))]
    if missing or random.random() < 0.2:
        strategy = str(random.choice(["mean", "median", "most_frequent", "constant"]))
        imputer = SimpleImputer(strategy=strategy, fill_value=float(random.choice([0.0, -3.5])))
        steps.insert(random.integers(0, len(steps) + 1), imputer)
    return steps


def hostile_model(random: np.random.Generator) -> Any:
    """A linear model of any kind and strength."""
    strength, intercept = float(10.0 ** random.uniform(-4.0, 3.0)), bool(random.random() < 0.8)
    balanced = "balanced" if random.random() < 0.25 else None
    loss = str(random.choice(["logistic", "squared_hinge", "smoothed_hinge"]))
    logistic = LogisticRegression(C=strength, fit_intercept=intercept, class_weight=balanced)
    models = (
        logistic,
        logistic,
        logistic,
        Ridge(alpha=strength, fit_intercept=intercept),
        Ridge(alpha=strength, fit_intercept=intercept),
        RidgeClassifier(alpha=strength, fit_intercept=intercept, class_weight=balanced),
        glru.GLRUClassifier(loss, lam=0.1 * strength, fit_intercept=intercept, class_weight=balanced),
        glru.GLRUClassifier(loss, C=strength, kappa=0.1, fit_intercept=intercept),
        ElasticNet(alpha=0.01 * strength, fit_intercept=intercept),
        LinearSVC(C=strength, class_weight=balanced),
    )
    return models[random.integers(len(models))]


@dataclass
class Truth:
    """A pipeline's models in 40 digits."""

    pipeline: Any
    adapted: Any
    X: np.ndarray

    def __post_init__(self) -> None:
        self.mp = make_context(DIGITS + 15)
        self.problem = self.adapted.problems[0]
        self.offset = self.problem.n_columns - self.X.shape[1]
        self.raw = [[None if np.isnan(value) else self.mp.mpf(float(value)) for value in x] for x in self.X.T]
        self.made = precise(self.mp, self.problem.matrix.dense())
        self.before = self.columns(range(len(self.X)))

    def columns(self, train: Sequence[int]) -> list[Column]:
        """The steps fitted to some rows."""
        found = [Column(self.mp, raw, train, self.mp.zero, self.mp.one) for raw in self.raw]
        for step in [step for _, step in self.pipeline.steps[:-1]]:
            for column in found:
                column.through(step)
        return found

    def scores(
        self, train: Sequence[int], test: Sequence[int], weight: np.ndarray, moves: np.ndarray | None
    ) -> list[Exact] | None:
        """Scores of the test rows under the model of the train rows with their weights; None where it has none."""
        mp, problem, penalty = self.mp, self.problem, self.problem.penalty
        lam, kappa = (
            precise(mp, np.broadcast_to(part, (problem.n_columns,))) for part in (penalty.quadratic, penalty.absolute)
        )
        for j, ratio in enumerate(self.ratios(train), self.offset):
            lam[j], kappa[j] = lam[j] * ratio * ratio, kappa[j] * ratio
        X = self.made if moves is None else self.made + precise(mp, moves)
        used = np.flatnonzero(weight > 0.0)
        weights, y = precise(mp, weight[used]), precise(mp, problem.y[used])
        exact = scale_columns(mp, X[used], y, weights, lam, kappa, problem.loss, problem.fit_intercept)
        trained = retrain_precise(exact, DIGITS)
        if trained is None:
            return None
        rows = X[list(test)]
        off = [mp.fdot(abs(row), trained.doubts[:-1]) + trained.doubts[-1] for row in rows]
        return [(mp.fdot(row, trained.coef) + trained.intercept, far) for row, far in zip(rows, off, strict=True)]

    def ratios(self, train: Sequence[int]) -> list[Any]:
        """What the columns are divided by, in units of what they are divided by in all rows."""
        return [now.scale / then.scale for now, then in zip(self.columns(train), self.before, strict=True)]

    def moves(self, train: Sequence[int], mask: np.ndarray) -> list[Any]:
        """How far values of each column move: those that are missing, or those that are not."""
        found = []
        for now, then, x, here in zip(self.columns(train), self.before, self.X.T, mask.T, strict=True):
            move = self.mp.zero if self.problem.fit_intercept else then.shift - now.shift
            if here.any() and np.isnan(x[here]).all():
                move = move + now.fill - then.fill
            found.append(move / then.scale)
        return found

    def steps(self, trains: list[Any], changes: Any) -> Iterator[Answer]:
        """The factors and moves of the library against those of 40 digits, each within its error."""
        zero, columns = self.mp.zero, self.problem.matrix.dense()[:, self.offset :]
        for k in np.flatnonzero(~changes.alone):
            if changes.strengths is not None:
                places, stored = self.varied(trains[k]), changes.strengths[k]
                exact = [(ratio * ratio, zero) for ratio in np.array(self.ratios(trains[k]))[places]]
                far = changes.error * np.maximum(stored, 1.0)
                yield "strengths of a pipeline", exact, (stored - far)[places], (stored + far)[places]
            if changes.fills is not None:
                places, stored = changes.filled.any(axis=0), changes.fills[k]
                exact = [(move, zero) for move in np.array(self.moves(trains[k], changes.filled))[places]]
                far = changes.error * np.abs(columns).max(axis=0)
                yield "moves of a pipeline", exact, (stored - far)[places], (stored + far)[places]

    def varied(self, train: Sequence[int]) -> np.ndarray:
        """Columns with more than one value in some rows: what others are divided by does not matter behind an intercept."""
        return np.array([len(set(column.made())) > 1 for column in self.columns(train)])


def pipeline_case(random: np.random.Generator) -> tuple[Any, np.ndarray, np.ndarray]:
    """A pipeline and raw data."""
    n, d = int(random.integers(5, 13)), int(random.integers(1, 4))
    if random.random() < 0.25:
        n, d = int(random.integers(4, 7)), int(random.integers(5, 8))
    X = np.column_stack([hostile_column(random, n) for _ in range(d)])
    missing = random.random() < 0.5
    if missing:
        X[random.random(X.shape) < random.choice([0.05, 0.3])] = np.nan
        X[:, np.isnan(X).sum(axis=0) > n - 3] = 1.0
    model = hostile_model(random)
    y = random.normal(size=n)
    if hasattr(model, "decision_function"):
        y = np.where(np.argsort(np.argsort(y)) < n // 2, -1, 1)
    return make_pipeline(*hostile_steps(random, bool(np.isnan(X).any())), model), X, y


def pipelines(random: np.random.Generator) -> Iterator[Answer]:
    """Leave-one-out of a pipeline by every way to ask for it, and folds."""
    pipeline, X, y = pipeline_case(random)
    try:
        adapted = adapt(pipeline, X, y)
    except ValueError as error:
        if "finite" in str(error):
            return
        raise
    # Intervals may be wider than asked where float64 allows no more; a warning says so.
    warnings.simplefilter("ignore", UserWarning)
    # What scikit-learn's own scalers say of a column without a value.
    warnings.filterwarnings("ignore", "All-NaN slice", RuntimeWarning)
    truth, everything, refits = Truth(pipeline, adapted, X), np.arange(len(y)), adapted.refits[0]
    yield from truth.steps([np.delete(everything, row).tolist() for row in everything], adapted.column_changes)
    exact: list[Exact] = []
    for row in everything:
        problem = refits.problem(adapted.problems[0], int(row))
        if refits.alone[row]:
            # Taken as scikit-learn's own refit makes it in float64.
            model = retrain(problem, DIGITS)
            found = None if model is None else model.scores(problem.matrix.dense()[row : row + 1])
        else:
            moves = None if refits.fills is None else refits.filled * refits.fills[row]
            found = truth.scores(np.delete(everything, row).tolist(), [int(row)], problem.weights, moves)
        if found is None:
            return
        exact += found
    for width in [None, 1e-6, 1e-11, *(["labels"] if adapted.classes is not None else [])]:
        answer = glru.loocv(pipeline, X, y, width=width, max_seconds=2.0).bounds
        yield f"leave-one-out of a pipeline, width {width}", exact, answer.lower, answer.upper
    answer = glru.cross_val_predict(pipeline, X, y, cv=LeaveOneOut(), return_result=True).bounds
    yield "cross_val_predict of a pipeline, leave-one-out", exact, answer.lower, answer.upper
    for n_splits in (2, 3):
        yield from folds(random, n_splits, pipeline, X, y, truth)


def folds(
    random: np.random.Generator, n_splits: int, pipeline: Any, X: np.ndarray, y: np.ndarray, truth: Truth
) -> Iterator[Answer]:
    """Folds whose steps are followed in closed form."""
    splits = list(KFold(n_splits, shuffle=True, random_state=int(random.integers(1000))).split(X))
    adapted, classes = truth.adapted, truth.adapted.classes
    if classes is not None and any(np.unique(y[train]).size < 2 for train, _ in splits):
        return
    changes = adapted.find_changes(splits)
    yield from truth.steps([train.tolist() for train, _ in splits], changes)
    exact: list[Exact] = []
    for k, ((train, test), fold) in enumerate(zip(splits, adapted.folds(splits, changes), strict=True)):
        if changes.alone[k]:
            return
        moves = None
        if changes.fills is not None:
            moves = np.hstack([np.zeros((len(y), truth.offset)), changes.filled * changes.fills[k]])
        found = truth.scores(train.tolist(), test.tolist(), fold.problems[0].weights, moves)
        if found is None:
            return
        exact += found
    method = "predict" if classes is None else str(random.choice(["predict", "decision_function"]))
    for width in (None, 1e-11):
        answer = glru.cross_val_predict(pipeline, X, y, cv=splits, method=method, width=width, return_result=True)
        yield f"folds of a pipeline, width {width}", exact, answer.score_lower, answer.score_upper


PIPELINES = (pipelines,)
