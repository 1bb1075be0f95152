"""Leave-one-out of hostile problems where leaving out a row changes strengths, filled values and class weights as well."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

import glru
from glru.verify.retraining import retrain
from tests.attack.cases import DIGITS, Answer, never, quiet
from tests.attack.generators import hostile_problem, hostile_wide_problem
from tests.attack.multinomial import exact_model, hostile_wide_classes, queries_of
from tests.certificates.test_multinomial import problems
from tests.core import (
    UNIT,
    ClassRows,
    Refits,
    TallRefits,
    WideClasses,
    WideRefits,
    has_refitted_rows,
    has_wide_rows,
    leave_one_out,
    summed,
    train,
)


def hostile_refits(random: np.random.Generator, problem: glru.Problem, size: float | None = None) -> Refits:
    """Some of the three kinds of changes of some size, small as those of a scaler or large where none is given."""
    shape = problem.n_rows, problem.n_columns
    size = float(random.choice([1e-6, 1e-2, 0.3, 0.9])) if size is None else size
    # What is stored is exact but for the products that a problem is made of.
    changes: dict[str, Any] = {"error": 4.0 * UNIT}
    if random.random() < 0.7:
        changes["strengths"] = 1.0 + size * random.uniform(-1.0, 1.0, shape)
    if random.random() < 0.4:
        filled = random.random(shape) < 0.3
        sizes = np.abs(problem.matrix.dense()).max(axis=0)
        changes["filled"], changes["fills"] = filled, 0.3 * size * sizes * random.uniform(-1.0, 1.0, shape)
    if problem.loss.task == "classification" and random.random() < 0.4:
        n_groups = 2
        if problem.loss.several or random.random() < 0.3:
            n_groups = 3
            changes["groups"] = random.integers(0, n_groups, problem.n_rows)
        changes["class_factors"] = 1.0 + size * random.uniform(-1.0, 1.0, (problem.n_rows, n_groups))
    if not changes.keys() & {"strengths", "fills", "class_factors"}:
        changes["strengths"] = 1.0 + size * random.uniform(-1.0, 1.0, shape)
    described = Refits(**changes)
    # Where a penalty has no squares, rows that no support is proven of are fitted again.
    return replace(described, refit=partial(described.described, problem))


def refitted(random: np.random.Generator) -> Iterator[Answer]:
    """The batches by themselves, and leave-one-out as a whole."""
    problem = hostile_wide_problem(random) if random.random() < 0.4 else hostile_problem(random)
    if np.count_nonzero(problem.sample_weight) < 2:
        return
    refits = hostile_refits(random, problem)
    rows, exact = [], []
    for row in range(problem.n_rows):
        changed = refits.problem(problem, row)
        truth = retrain(changed, DIGITS) if changed.sample_weight.any() else None
        if truth is None and row == 2 and not rows:
            return
        if truth is not None:
            rows.append(row)
            exact.append(truth.scores(changed.matrix.dense()[row : row + 1])[0])
    places = np.array(rows, dtype=np.intp)
    solution = quiet(problem, random)
    start, known = solution, refits
    if problem.scaling == "mean" and problem.penalty.smooth:
        start, known = summed(solution), refits.summed(problem)
    with np.errstate(all="ignore"):
        if has_refitted_rows(start.problem):
            family = (WideRefits if has_wide_rows(start.problem) else TallRefits)(start, known)
            for n_steps in (1, 4):
                yield f"{type(family).__name__}, {n_steps} steps", exact, *family.bounds(places, never, n_steps)
            if isinstance(family, TallRefits):
                yield from _expanded(family, places, exact)
    try:
        found = leave_one_out(solution, refits=refits, width=random.choice([None, 1e-6]), max_seconds=1.0).bounds
    except ValueError as error:
        if "leave-one-out needs" in str(error) or "each class needs" in str(error):
            return
        raise
    yield "leave-one-out with refits", exact, found.lower[places], found.upper[places]


def _expanded(family: TallRefits, rows: np.ndarray, exact: list[Any]) -> Iterator[Answer]:
    """The bounds that follow from expansions of the losses, of first and second order."""
    yield (
        "TallRefits, first order",
        exact,
        *family.bound_quickly(rows, lambda lower, _: np.ones(len(lower), dtype=bool)),
    )
    known = family.problem.loss.fourth_constant is not None and family.family.usable
    if known and family.family.base.constant > 0.0:
        places, first = family.closer.find_first_candidates(rows)
        if first is not None:
            yield "TallRefits, second order", [exact[k] for k in places], *first.bound_to_second_order()


def refitted_classes(random: np.random.Generator) -> Iterator[Answer]:
    """The same with one score per class: the batches by themselves, and leave-one-out as a whole."""
    wide = bool(random.random() < 0.4)
    problem = hostile_wide_classes(random) if wide else problems(int(random.integers(1 << 40)))
    solution = train(problem, tol=10.0 ** -random.uniform(2, 9))
    refits, free = hostile_refits(random, problem), problem.fit_intercept
    rows = np.sort(random.choice(problem.n_rows, min(3, problem.n_rows), replace=False))
    reference = random.integers(0, problem.n_scores, rows.size)
    exact, known = [], []
    for place, row in enumerate(rows):
        changed = refits.problem(problem, int(row))
        with np.errstate(all="ignore"):
            x = changed.matrix[[row]].dense()[0]
            found = queries_of(exact_model(changed), x, free, int(reference[place]))
        if found is not None:
            known.append(place)
            exact.append(found)
    if not known:
        return
    rows, reference = rows[known], reference[known]
    flat = [value for line in exact for value in line]
    start, mine = (solution, refits) if problem.scaling == "sum" else (summed(solution), refits.summed(problem))
    with np.errstate(all="ignore"):
        family = WideClasses(start, mine) if wide else ClassRows(start.problem, start.point, mine)
        for n_steps in (1, 4):
            bound = family.bounds if wide else family.refined
            found = bound(rows, reference, lambda lower, _: np.zeros(len(lower), dtype=bool), n_steps)
            yield f"{type(family).__name__} with refits, {n_steps} steps", flat, *(ends.ravel() for ends in found)
        found = leave_one_out(solution, refits=refits, width=random.choice([None, 1e-6]), max_seconds=2.0).bounds
    scores = [value for line in exact for value in line[: problem.n_scores]]
    yield "leave-one-out of classes with refits", scores, found.lower[rows].ravel(), found.upper[rows].ravel()


def tall_problem(random: np.random.Generator) -> glru.Problem:
    """Many rows of few columns, as expansions are made for: single rows move the model by little, or are far outliers."""
    n, d = int(random.integers(40, 200)), int(random.integers(1, 5))
    X = random.normal(size=(n, d)) * 10.0 ** random.uniform(-2.0, 2.0, d)
    if random.random() < 0.5:
        X *= np.exp(random.uniform(0.2, 1.5) * random.normal(size=(n, d)))
    scores = (X / X.std(axis=0)) @ random.normal(size=d)
    loss = random.choice([glru.Logistic(), glru.Poisson()])
    if loss.task == "classification":
        y = scores + random.logistic(size=n) > 0.0
        y[:2] = False, True
    else:
        y = random.poisson(np.exp(np.clip(0.3 * scores, -3.0, 2.0))).astype(np.float64)
    weight = random.uniform(0.1, 2.0, n) if random.random() < 0.3 else None
    penalty = glru.L2(10.0 ** random.uniform(-3.0, 1.0, d))
    return glru.Problem(
        X,
        y,
        loss,
        penalty,
        fit_intercept=bool(random.random() < 0.7),
        sample_weight=weight,
        scaling=str(random.choice(["sum", "mean"])),
    )


def refitted_tall(random: np.random.Generator) -> Iterator[Answer]:
    """A few rows of tall data: where expansions are narrow, what they leave out counts."""
    problem = tall_problem(random)
    refits = hostile_refits(random, problem, float(random.choice([1e-6, 1e-4, 1e-2])))
    norms = np.linalg.norm(problem.matrix.dense() / np.abs(problem.matrix.dense()).max(axis=0), axis=1)
    rows = np.unique(np.append(random.choice(problem.n_rows, 2, replace=False), np.argmax(norms)))
    exact = []
    for row in rows:
        changed = refits.problem(problem, int(row))
        truth = retrain(changed, DIGITS)
        if truth is None:
            return
        exact.append(truth.scores(changed.matrix.dense()[row : row + 1])[0])
    solution = quiet(problem, random)
    start, known = solution, refits
    if problem.scaling == "mean":
        start, known = summed(solution), refits.summed(problem)
    with np.errstate(all="ignore"):
        family = TallRefits(start, known)
        yield from _expanded(family, rows, exact)
        for n_steps in (1, 4):
            yield f"TallRefits of tall data, {n_steps} steps", exact, *family.bounds(rows, never, n_steps)
    found = leave_one_out(solution, refits=refits, aim=random.choice([None, 1e-6]), max_seconds=2.0).bounds
    yield "leave-one-out of tall data with refits", exact, found.lower[rows], found.upper[rows]


REFITS = (refitted, refitted_tall, refitted_classes)
