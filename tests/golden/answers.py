"""Every call into the library: what it answers to a case, as plain values. A change of its API is followed here alone.

Labels are a string with one character per row: ``+`` or ``-`` where the label is proven, ``?`` where it is open.
An interval is a list ``[lower, upper]``; scores of some rows are lists ``[row, lower, upper]``.
"""

import functools
import operator
import warnings
from typing import Any

import dask.array
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import PredefinedSplit

import glru
from tests.golden import cases
from tests.golden.cases import Case, Change, Data, Model

LOSSES = {
    "logistic": glru.Logistic(),
    "squared": glru.Squared(),
    "huber": glru.Huber(gamma=0.5),
    "squared-hinge": glru.SquaredHinge(),
    "smoothed-hinge": glru.SmoothedHinge(gamma=0.5),
    "hinge": glru.Hinge(),
}

Answer = dict[str, Any]


def answers_of(case: Case) -> Answer:
    """Everything that is asked of a case, by question."""
    data = cases.load(case.data)
    model = cases.model_of(case, *data.X.shape)
    problem = make_problem(data.X, data.y, model)
    answers: Answer = {}
    with warnings.catch_warnings():
        # A training that float64 ends early is reported by open answers, which are compared.
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = glru.solve(problem)
        for question in case.questions:
            match question:
                case "loocv":
                    answers["loocv"] = loocv_answers(solution)
                case "folds":
                    answers["folds"] = fold_answers(solution)
                case "changes":
                    answers |= change_answers(solution, cases.simple_changes(data.X.shape[1]), data)
                case "more-changes":
                    answers |= change_answers(solution, cases.more_changes(data.X.shape[1]), data)
                case "blocks":
                    answers |= block_answers(data, model)
                case "path":
                    answers["path"] = path_answers(problem)
                case "backward" | "forward":
                    answers |= stepwise_answers(problem, data, question)
    return answers


def make_problem(X: Any, y: np.ndarray, model: Model) -> glru.Problem:
    """The training problem of a model."""
    match model.penalty:
        case "l2":
            penalty = glru.L2(model.quadratic)
        case "elastic-net":
            penalty = glru.ElasticNet(model.quadratic, model.absolute)
        case "l1":
            penalty = glru.L1(model.absolute)
    return glru.Problem(
        X,
        y,
        LOSSES[model.loss],
        penalty,
        fit_intercept=model.fit_intercept,
        scaling=model.scaling,
        sample_weight=model.sample_weight,
    )


def train(X: Any, y: np.ndarray, model: Model) -> tuple[np.ndarray, float, float]:
    """Coefficients, intercept and duality gap of a training from zero, about as far as float64 goes."""
    rough = model.loss == "hinge" or model.penalty == "l1"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = glru.solve(make_problem(X, y, model), tol=1e-12 if rough else 1e-16)
    return solution.coef, solution.intercept, solution.gap


def loocv_answers(solution: glru.Solution) -> Answer:
    """Leave-one-out: labels and error count, or the mean squared error."""
    result = glru.loocv(solution)
    answer = _scores(result.score_lower, result.score_upper)
    if is_classification(solution.problem):
        answer |= {"labels": _labels(result.bounds.signs), "count": [result.errors_lower, result.errors_upper]}
    else:
        answer |= {"value": [float(end) for end in result.metric_bounds("squared_error")]}
    return answer


def fold_answers(solution: glru.Solution) -> Answer:
    """Cross-validation; the rows are put back into the order of the data."""
    result = glru.cross_val_predict(solution, cv=cases.folds(solution.problem.n_rows))
    order = np.argsort(result.rows)
    answer = _scores(result.score_lower[order], result.score_upper[order])
    if is_classification(solution.problem):
        answer["labels"] = _labels(result.bounds.signs[order])
    return answer


def block_answers(data: Data, model: Model) -> Answer:
    """Leave-one-out and cross-validation of rows that come in blocks."""
    blocks = dask.array.from_array(data.X, chunks=(-(-data.y.size // 3), -1))
    solution = glru.solve(make_problem(blocks, data.y, model))
    answers = {"blocks loocv": loocv_answers(solution)}
    folds = np.empty(data.y.size, dtype=int)
    for k, (_, test) in enumerate(cases.folds(data.y.size)):
        folds[test] = k
    result = glru.cross_val_predict(solution, cv=PredefinedSplit(folds))
    order = np.argsort(result.rows)
    answers["blocks folds"] = _scores(result.score_lower[order], result.score_upper[order])
    if is_classification(solution.problem):
        answers["blocks folds"]["labels"] = _labels(result.bounds.signs[order])
    return answers


def make_change(change: Change, data: Data) -> Any:
    """A change as the library states it."""
    parts = []
    if change.edit:
        rows, column, values = change.edit
        parts.append(glru.EditValues(rows, [column], np.array(values)[:, None]))
    if change.flip:
        parts.append(glru.Relabel(change.flip, -data.y[list(change.flip)]))
    if change.reweight:
        parts.append(glru.Reweight(*change.reweight))
    if change.remove_rows:
        parts.append(glru.RemoveRows(change.remove_rows))
    if change.add_rows:
        parts.append(glru.AddRows(data.X_aside[list(change.add_rows)], data.y_aside[list(change.add_rows)]))
    if change.remove_columns:
        parts.append(glru.RemoveColumns(change.remove_columns))
    return functools.reduce(operator.add, parts)


def change_answers(solution: glru.Solution, changes: dict[str, Change], data: Data) -> Answer:
    """What is proven of the model after each change, for the rows set aside."""
    answers = {}
    for name, change in changes.items():
        left = np.setdiff1d(np.arange(data.X.shape[1]), change.remove_columns)
        queries = data.X_aside[:, left]
        out = glru.after(solution, make_change(change, data))
        answers[f"after {name}"] = _scores(*out.score_bounds(queries), cases.N_SAMPLED_AFTER)
        if is_classification(solution.problem):
            answers[f"after {name}"]["labels"] = _labels(out.score_bounds(queries).signs)
    return answers


def path_answers(problem: glru.Problem) -> Answer:
    """Leave-one-out along the strengths: a count or a mean squared error for each, and the best strength."""
    path = glru.loocv_path(problem, cases.STRENGTHS)
    kind = "counts" if is_classification(problem) else "values"
    ends = [[float(low), float(high)] for low, high in zip(path.lower, path.upper, strict=True)]
    return {kind: ends, "best": float(path.best_lam), "certified": bool(path.certified)}


def stepwise_answers(problem: glru.Problem, data: Data, direction: str) -> Answer:
    """Feature selection on the rows set aside: moves, the criterion after each, and what is selected."""
    criterion = (
        "squared_error" if not is_classification(problem) else "error" if direction == "backward" else "log_loss"
    )
    result = glru.stepwise(
        problem,
        X_val=data.X_aside,
        y_val=data.y_aside,
        direction=direction,
        criterion=criterion,
        max_steps=cases.N_STEPS,
    )
    values = [result.start_value, *((step.value_lower, step.value_upper) for step in result.path)]
    answer = {
        "moves": [" ".join([step.action, *map(str, step.columns)]) for step in result.path],
        "counts" if criterion == "error" else "values": [[float(low), float(high)] for low, high in values],
        "certified": bool(result.certified),
    }
    selected = {int(column) for column in result.selected}
    if direction == "forward":
        answer["selected"] = sorted(selected)
    else:
        answer["removed"] = sorted(set(range(problem.n_columns)) - selected)
    recorded_as = "mse" if criterion == "squared_error" else criterion
    return {f"stepwise {direction} {recorded_as}": answer}


def is_classification(problem: glru.Problem) -> bool:
    """Whether the answers are labels."""
    return problem.loss.task == "classification"


def _labels(labels: np.ndarray) -> str:
    return "".join(np.array(["-", "?", "+"])[np.asarray(labels, dtype=int) + 1])


def _scores(lower: np.ndarray, upper: np.ndarray, n_sampled: int = cases.N_SAMPLED) -> Answer:
    rows = cases.sampled(len(lower), n_sampled)
    return {"scores": [[int(row), float(lower[row]), float(upper[row])] for row in rows]}
