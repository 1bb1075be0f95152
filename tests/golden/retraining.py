"""Answers held against training every changed data set from zero, so that no wrong answer is recorded."""

from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from tests.golden import cases
from tests.golden.answers import train
from tests.golden.cases import Case, Change, Data, Model

N_NEAREST = 8
"""Rows retrained in a large case: those with the smallest scores, where a label is wrong most easily."""


def check(case: Case, answers: dict[str, Any]) -> list[str]:
    """What retraining contradicts, one line for each; adds to the answers what it alone knows."""
    data = cases.load(case.data)
    model = cases.model_of(case, *data.X.shape)
    found = []
    for question, answer in answers.items():
        kind, _, detail = question.removeprefix("blocks ").partition(" ")
        if kind == "loocv":
            found += _compare(question, answer, *_held_out_rows(case, data, model))
        elif kind == "folds":
            found += _compare(question, answer, *_held_out_folds(data, model))
        elif kind == "after":
            change = (cases.simple_changes(data.X.shape[1]) | cases.more_changes(data.X.shape[1]))[detail]
            found += _compare(question, answer, *_after(change, data, model))
        elif kind == "stepwise" and data.X.shape[1] <= 16:
            found += [f"{question}: {line}" for line in _follow(answer, *detail.split(), data, model)]
    return found


def predict(X: Any, y: np.ndarray, model: Model, queries: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores of some rows under the model trained on ``X, y``, and how far each may be from the truth."""
    coef, intercept, gap = train(X, y, model)
    scores = queries @ coef + intercept
    rounding = 1e-12 * (1.0 + np.abs(scores))
    lam = np.min(model.quadratic) if model.penalty != "l1" else 0.0
    if model.fit_intercept or lam == 0.0:
        # The gap bounds no score here; it is about 1e-16, or 1e-12 for a hinge or an L1 penalty.
        rough = model.loss == "hinge" or lam == 0.0
        share = np.inf if gap > 1e-9 else 1e-3 if rough else 1e-6
        return scores, rounding + share * (1.0 + np.abs(scores))
    size = np.sqrt((queries.multiply(queries) if sp.issparse(queries) else queries**2).sum(axis=1))
    return scores, rounding + np.sqrt(2.0 * max(gap, 0.0) / lam) * size


def _held_out_rows(case: Case, data: Data, model: Model) -> tuple[np.ndarray, np.ndarray]:
    n = data.y.size
    rows = np.arange(n)
    if not case.retrain_all:
        coef, intercept, _ = train(data.X, data.y, model)
        nearest = np.argsort(np.abs(data.X @ coef + intercept))[:N_NEAREST]
        rows = np.union1d(nearest, cases.sampled(n)[::3])
    scores, off = np.full(n, np.nan), np.full(n, np.inf)
    for row in rows:
        left = np.delete(np.arange(n), row)
        scores[[row]], off[[row]] = predict(data.X[left], data.y[left], model.of(left), data.X[[row]])
    return scores, off


def _held_out_folds(data: Data, model: Model) -> tuple[np.ndarray, np.ndarray]:
    scores, off = np.empty(data.y.size), np.empty(data.y.size)
    for left, test in cases.folds(data.y.size):
        scores[test], off[test] = predict(data.X[left], data.y[left], model.of(left), data.X[test])
    return scores, off


def _after(change: Change, data: Data, model: Model) -> tuple[np.ndarray, np.ndarray]:
    X, y = data.X.copy(), data.y.copy()
    weight = np.ones(y.size) if model.sample_weight is None else model.sample_weight.copy()
    if change.edit:
        rows, column, values = change.edit
        X = sp.lil_array(X) if sp.issparse(X) else X
        for row, value in zip(rows, values, strict=True):
            X[row, column] = value
    y[list(change.flip)] *= -1.0
    if change.reweight:
        weight[list(change.reweight[0])] = change.reweight[1]
    left = np.setdiff1d(np.arange(y.size), change.remove_rows)
    columns = np.setdiff1d(np.arange(X.shape[1]), change.remove_columns)
    added = list(change.add_rows)
    stack = sp.vstack if sp.issparse(X) else np.vstack
    X = stack([X[left], data.X_aside[added]])
    y = np.append(y[left], data.y_aside[added])
    weight = np.append(weight[left], np.ones(len(added)))
    X = sp.csr_array(X) if sp.issparse(X) else X
    model = replace(model.of(left, columns), sample_weight=weight)
    return predict(X[:, columns], y, model, data.X_aside[:, columns])


def _compare(question: str, answer: dict[str, Any], scores: np.ndarray, off: np.ndarray) -> list[str]:
    """What retrained scores contradict; nan where a row was not retrained."""
    found = []
    for row, lower, upper in answer["scores"]:
        if scores[row] + off[row] < lower or scores[row] - off[row] > upper:
            found.append(f"{question}: the score of row {row} is {scores[row]}, outside of [{lower}, {upper}]")
    rows = [row for row, *_ in answer["scores"]]
    if not np.isfinite(answer["scores"]).all() and np.isfinite(off[rows]).all():
        # Nothing bounds these scores yet; a bound that will must hold the retrained ones.
        ends = zip(rows, scores[rows] - off[rows], scores[rows] + off[rows], strict=True)
        answer["retrained scores"] = [
            [row, round(float(lower), 6), round(float(upper), 6)] for row, lower, upper in ends
        ]
    if "labels" in answer:
        sure = np.abs(scores) > off
        retrained = np.where(sure, np.where(scores > 0.0, "+", "-"), "?")
        labels = np.array(list(answer["labels"]))
        wrong = np.flatnonzero((labels != "?") & sure & (labels != retrained))
        found += [f"{question}: row {row} is {labels[row]}, but its retrained score {scores[row]}" for row in wrong]
        if np.any((labels == "?") & sure):
            # An open label that is decided one day must be this one.
            answer["retrained"] = "".join(retrained)
    return found


def _follow(answer: dict[str, Any], direction: str, criterion: str, data: Data, model: Model) -> list[str]:
    """Walk along a stepwise path, train every candidate of each step, and see that the best one was taken."""
    d = data.X.shape[1]
    chosen = set(range(d)) if direction == "backward" else set()
    start, *bounds = answer["counts" if criterion == "error" else "values"]
    found = _outside("start", start, _criterion(chosen, criterion, data, model))
    for move, ends in zip(answer["moves"], bounds, strict=True):
        moves = [chosen ^ {j} for j in range(d) if (j in chosen) == (direction == "backward")]
        # No move comes before any, then the lowest column.
        options = [chosen, *(columns for columns in moves if columns)]
        values = [_criterion(columns, criterion, data, model) for columns in options]
        best = min(range(len(values)), key=lambda k: values[k][0])
        taken = options.index(chosen ^ {int(column) for column in move.split()[1:]})
        certain = criterion == "error" and all(off == 0.0 for _, off in values)
        if taken != best and (certain or values[taken][0] - values[best][0] > values[taken][1] + values[best][1]):
            found.append(f"{move}: the criterion is {values[taken][0]}, that of {options[best]} is {values[best][0]}")
        found += _outside(move, ends, values[taken])
        chosen = options[taken]
    expected = {"selected": chosen} if direction == "forward" else {"removed": set(range(d)) - chosen}
    for kind, columns in expected.items():
        if sorted(columns) != answer[kind]:
            found.append(f"the path ends with {sorted(columns)} {kind}, the answer is {answer[kind]}")
    return found


def _criterion(columns: set[int], criterion: str, data: Data, model: Model) -> tuple[float, float]:
    """The criterion of the model of some columns, and how far it may be off."""
    rows, used = np.arange(data.y.size), np.array(sorted(columns), dtype=int)
    if used.size:
        X, queries, part = data.X[:, used], data.X_aside[:, used], model.of(rows, used)
    else:
        # A column of zeros: its coefficient is 0, and the intercept is trained alone.
        X, queries = np.zeros((data.y.size, 1)), np.zeros((data.y_aside.size, 1))
        part = replace(model, penalty="l2", quadratic=1.0, absolute=0.0)
    scores, off = predict(X, data.y, part, queries)
    y = data.y_aside
    if criterion == "error":
        if not used.size and not model.fit_intercept:
            return float(y.size), 0.0
        return float(np.sum(y * scores <= 0.0)), float(np.sum(np.abs(scores) <= off))
    if criterion == "log_loss":
        return float(np.mean(np.logaddexp(0.0, -y * scores))), float(np.mean(off))
    return float(np.mean((y - scores) ** 2)), float(np.mean(2.0 * off * (np.abs(y - scores) + off)))


def _outside(step: str, ends: list[float], value: tuple[float, float]) -> list[str]:
    inside = ends[0] - value[1] <= value[0] <= ends[1] + value[1]
    return [] if inside else [f"{step}: the criterion is {value[0]}, outside of {ends}"]
