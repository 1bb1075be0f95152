"""Problems aimed at the weak spots of float64: each recipe spoils a small ordinary problem in one way."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

import glru

LOSSES = (
    glru.Squared(),
    glru.Huber(0.5),
    glru.Huber(1e3),
    glru.Logistic(),
    glru.Logistic(),
    glru.Logistic(),
    glru.SquaredHinge(),
    glru.SmoothedHinge(0.25),
    glru.SmoothedHinge(10.0),
    glru.Hinge(),
)


LOG_LINK = (
    glru.Poisson(),
    glru.Poisson(),
    glru.Gamma(),
    glru.Tweedie(1.05),
    glru.Tweedie(1.5),
    glru.Tweedie(1.9),
    glru.NegativeBinomial(0.1),
    glru.NegativeBinomial(3.0),
    glru.losses.Binomial(),
    glru.losses.Binomial(),
)

drawn = LOSSES


@contextmanager
def drawing(losses: tuple[glru.losses.Loss, ...]) -> Iterator[None]:
    """Problems whose loss is not asked for have one of these."""
    global drawn
    before, drawn = drawn, losses
    try:
        yield
    finally:
        drawn = before


@dataclass
class Draft:
    """What a problem is made of, before it is made."""

    random: np.random.Generator
    loss: glru.losses.Loss
    X: np.ndarray
    z: np.ndarray
    strength: float = 1.0
    weight: np.ndarray | None = None
    free: bool = False
    alone: bool = False
    signs: np.ndarray | None = None


def separable(draft):
    """Labels that a plane separates, far apart: slopes underflow."""
    draft.X = draft.X + np.outer(np.sign(draft.z), draft.random.normal(0.0, 10.0, draft.X.shape[1]))
    draft.strength = 10.0 ** draft.random.uniform(-10.0, -3.0)


def duplicates(draft):
    """Rows that are equal, or 1e-12 apart."""
    rows = draft.random.integers(0, len(draft.X), len(draft.X))
    draft.X = draft.X[rows] * (
        1.0 + 1e-12 * draft.random.normal(0.0, 1.0, (len(rows), 1)) * draft.random.integers(0, 2)
    )


def leverage(draft):
    """One row that outweighs all others: its leverage is close to 1."""
    draft.X[0] *= 10.0 ** draft.random.uniform(2.0, 8.0)


def strengths(draft):
    """A penalty from negligible to overwhelming."""
    draft.strength = 10.0 ** draft.random.uniform(-12.0, 12.0)


def scales(draft):
    """Columns of wildly different size."""
    draft.X = draft.X * 10.0 ** draft.random.choice([-150, -80, -8, 0, 0, 8, 80, 150], draft.X.shape[1])


def mild_scales(draft):
    """Columns whose sizes differ by some digits."""
    draft.X = draft.X * 10.0 ** draft.random.choice([-8, -4, -2, 0, 0, 2, 4, 8], draft.X.shape[1])


def threshold(draft):
    """Rows that come with their mirror image and the same label: scores at zero."""
    half = len(draft.X) // 2
    draft.X[half : 2 * half] = -draft.X[:half]
    draft.signs = np.ones(len(draft.X))
    draft.signs[:half] = draft.signs[half : 2 * half] = np.where(draft.random.random(half) < 0.5, 1.0, -1.0)


def balanced(draft):
    """Rows in pairs with opposite targets, but for a light one, and similar columns: sums of large slopes are small, and so are models."""
    half, apart = len(draft.X) // 2, 10.0 ** draft.random.uniform(-6.0, -2.0)
    draft.X[:, -1] = draft.X[:, 0] * (1.0 + apart * draft.random.normal(0.0, 1.0, len(draft.X)))
    draft.X[half : 2 * half] = draft.X[:half]
    draft.z[half : 2 * half] = -draft.z[:half]
    draft.signs = np.ones(len(draft.X))
    draft.signs[half : 2 * half] = -1.0
    draft.weight = np.where(np.arange(len(draft.X)) < 2 * half, 1.0, 1e-9)
    draft.strength = apart**2 * 10.0 ** draft.random.uniform(-4.0, 1.0)


def lone(draft):
    """All labels but one are equal."""
    draft.signs = np.ones(len(draft.X))
    draft.signs[0] = -1.0


def weights(draft):
    """Weights from 0 to 1e12."""
    draft.weight = 10.0 ** draft.random.uniform(-12.0, 12.0, len(draft.X)) * (draft.random.random(len(draft.X)) < 0.85)


def mild_weights(draft):
    """Weights from 0 to 3."""
    draft.weight = draft.random.uniform(0.0, 3.0, len(draft.X)) * (draft.random.random(len(draft.X)) < 0.85)


def few_rows(draft):
    """Two rows."""
    draft.X, draft.z = draft.X[:2], draft.z[:2]


def one_row(draft):
    """A single row: of a classification, what is left when all others were removed."""
    draft.alone = True


def one_column(draft):
    """One column."""
    draft.X = draft.X[:, :1]


def offset(draft):
    """Rows far from the origin."""
    draft.X = draft.X + 10.0 ** draft.random.uniform(4.0, 9.0)


def denormals(draft):
    """Entries at the lower end of float64, in some columns."""
    draft.X = draft.X * np.where(draft.random.random(draft.X.shape[1]) < 0.6, 1e-309, 1.0)


def kinks(draft):
    """Small integers and round strengths: kinks are hit exactly."""
    draft.X = np.round(draft.X)
    draft.strength = 2.0 ** draft.random.integers(-4, 4)


def hilbert(draft):
    """Nearly dependent columns."""
    n, d = draft.X.shape
    draft.X = 1.0 / (1.0 + np.add.outer(np.arange(n), np.arange(d)))


def vandermonde(draft):
    """Powers of nearby points."""
    n, d = draft.X.shape
    draft.X = np.vander(np.linspace(0.9, 1.1, n) * 10.0 ** draft.random.integers(0, 3), d)


def deficient(draft):
    """Equal columns, and none of them penalised."""
    draft.X[:, -1] = draft.X[:, 0]
    draft.free = True


def unpenalised(draft):
    """No penalty at all."""
    draft.free = True


def plain(draft):
    """Nothing special."""


RECIPES = (
    separable,
    duplicates,
    leverage,
    strengths,
    scales,
    mild_scales,
    threshold,
    balanced,
    lone,
    weights,
    mild_weights,
    few_rows,
    one_row,
    one_column,
    offset,
    denormals,
    kinks,
    hilbert,
    vandermonde,
    deficient,
    unpenalised,
    plain,
)


def hostile_problem(random: np.random.Generator, loss: glru.losses.Loss | None = None) -> glru.Problem:
    """A problem made by one to three recipes."""
    loss = drawn[random.integers(len(drawn))] if loss is None else loss
    n, d = int(random.choice([3, 5, 7, 9, 11])), int(random.choice([1, 2, 3, 4, 12]))
    X = random.normal(random.choice([0.0, 0.3, 3.0]), 1.0, (n, d))
    z = X @ random.normal(0.0, 1.0, d) + random.normal(0.0, random.choice([0.1, 1.0]), n)
    draft = Draft(random, loss, X, z, strength=10.0 ** random.uniform(-4.0, 2.0))
    for recipe in random.choice(np.array(RECIPES, dtype=object), random.integers(1, 4), replace=False):
        recipe(draft)
    X = draft.X
    n, d = X.shape
    offset = None
    if loss.link != "identity":
        y, offset = counts(random, loss, draft.z[:n])
    elif loss.task == "regression":
        y = draft.z[:n] * 10.0 ** random.choice([-4, 0, 0, 0, 4])
    else:
        y = np.where(draft.z[:n] > np.median(draft.z[:n]), 1.0, -1.0) if draft.signs is None else draft.signs[:n].copy()
        if y.min() == y.max():
            y[0] = -y[0]
    weight = draft.weight
    if weight is not None:
        weight = weight[:n] if weight[:n].any() else None
    elif loss.link == "logit" and random.random() < 0.5:
        # Shares of that many trials.
        weight = np.round(10.0 ** random.uniform(0.0, 4.0, n))
    if random.random() < 0.3:
        X = X * (random.random(X.shape) < 0.7)
    problem = glru.Problem(
        sp.csr_array(X) if random.random() < 0.25 else X,
        y,
        loss,
        _penalty(random, draft.strength, d, draft.free),
        bool(random.random() < 0.35),
        str(random.choice(["mean", "sum"])),
        weight,
        offset=offset,
    )
    if not draft.alone:
        return problem
    kept = int(np.argmax(problem.sample_weight))
    return glru.RemoveRows(np.delete(np.arange(n), kept)).apply(problem)


def counts(random: np.random.Generator, loss: glru.losses.Loss, z: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Targets of a log link, tiny and huge ones and most of them zero among others, and offsets or none."""
    size = 10.0 ** random.choice([-4, -1, 0, 0, 0, 2, 8])
    y = np.round(size * np.exp(np.clip(z, -5.0, 5.0)))
    if random.random() < 0.2:
        y = np.where(np.arange(y.size) == 0, y + 1.0, 0.0)
    y = y + 10.0 ** random.uniform(-6.0, 0.0) if isinstance(loss, glru.Gamma) else y
    if loss.link == "logit":
        # Shares, zeros and ones and next to them.
        y = y / np.maximum(y + np.round(random.choice([0.0, 1.0, 1e8]) * random.random(y.size)), 1.0)
    spread = random.choice([0.0, 0.0, 0.5, 3.0, 30.0])
    return y, random.uniform(-spread, spread, y.size) if spread else None


def _penalty(random: np.random.Generator, strength: float, d: int, free: bool) -> glru.penalties.Penalty:
    if free:
        return glru.L2(np.zeros(d))
    kind = random.choice(["l2", "l2", "l2", "l2", "columns", "elastic", "elastic columns", "l1"])
    each = strength * 10.0 ** random.uniform(-2.0, 2.0, d) * (random.random(d) < 0.8)
    kappa = min(strength, 1.0) * random.choice([0.01, 0.1, 0.5])
    if kind == "l2":
        return glru.L2(strength)
    if kind == "columns":
        return glru.L2(each)
    if kind == "elastic":
        return glru.ElasticNet(strength, kappa)
    if kind == "elastic columns":
        return glru.ElasticNet(each, np.where(random.random(d) < 0.7, kappa, 0.0))
    return glru.L1(kappa)


def unscaled_rows(random: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows in columns as they come in practice, of any size and far from zero, and what targets are made of."""
    base = random.normal(0.0, 1.0, (n, d))
    X = base.copy()
    for kind in random.choice(
        ["powers", "log-normal", "mean", "threshold", "plain"], random.integers(1, 3), replace=False
    ):
        if kind == "powers":
            X = X * 2.0 ** random.integers(-20, 21, d)
        elif kind == "log-normal":
            X = np.where(random.random(d) < 0.7, np.sign(X.max(axis=0)) * np.exp(random.uniform(0.5, 2.0) * base), X)
        elif kind == "mean":
            X = X + np.abs(X).max(axis=0) * 10.0 ** random.uniform(0.0, 5.0, d) * (random.random(d) < 0.7)
        elif kind == "threshold":
            half = n // 2
            X[half : 2 * half] = -X[:half]
    return X, base @ random.normal(0.0, 1.0, d) + random.normal(0.0, random.choice([0.1, 1.0]), n)


def unscaled_problem(random: np.random.Generator, loss: glru.losses.Loss | None = None) -> glru.Problem:
    """A problem of unscaled columns, tall or wide, with one strength for all of them."""
    loss = drawn[random.integers(len(drawn))] if loss is None else loss
    n, d = [(24, 3), (16, 5), (10, 2), (9, 20), (8, 40), (12, 12)][random.integers(6)]
    X, z = unscaled_rows(random, n, d)
    y, offset = np.where(z > np.median(z), 1.0, -1.0), None
    if loss.link != "identity":
        y, offset = counts(random, loss, z)
    elif loss.task == "regression":
        y = z * 10.0 ** random.choice([-3, 0, 0, 4])
    scaling = str(random.choice(["mean", "sum"]))
    strength = 10.0 ** random.uniform(-4.0, 3.0)
    penalty = glru.L2(strength) if random.random() < 0.8 else glru.ElasticNet(strength, 0.1 * min(strength, 1.0))
    return glru.Problem(X, y, loss, penalty, bool(random.random() < 0.6), scaling, offset=offset)


def hostile_change(random: np.random.Generator, problem: glru.Problem) -> glru.Change:
    """One to three changes of rows and columns, the last on what the first ones left."""
    change: glru.Change | None = None
    for _ in range(int(random.choice([1, 1, 2, 3]))):
        step = _single_change(random, problem)
        problem = step.apply(problem)
        change = step if change is None else change + step
    assert change is not None
    return change


def _single_change(random: np.random.Generator, problem: glru.Problem) -> glru.Change:
    n, d = problem.n_rows, problem.n_columns
    count = int(random.integers(1, 3))
    rows = random.permutation(n)[: min(count, n)]
    size = np.abs(problem.X).max() if sp.issparse(problem.X) else np.abs(problem.X).max(axis=0)
    kind = random.choice(["out", "in", "columns out", "columns in", "edit", "relabel", "reweight"])

    def some_targets(m: int) -> np.ndarray:
        if problem.loss.task == "classification":
            return np.asarray(random.choice([-1.0, 1.0], m))
        numbers = random.normal(0.0, 1.0, m) * (np.abs(problem.targets).max() + 1e-3)
        if problem.loss.link == "logit":
            return np.abs(numbers) / (1.0 + np.abs(numbers))
        return np.abs(numbers) if problem.loss.link == "log" else numbers

    if kind == "out" and n > count:
        return glru.RemoveRows(rows)
    if kind == "columns out" and d > 1:
        return glru.RemoveColumns(random.permutation(d)[: min(count, d - 1)])
    if kind == "columns in":
        block = random.normal(0.0, 1.0, (n, count)) * 10.0 ** random.choice([-170, -8, 0, 0, 0, 8], count)
        own = None
        if problem.penalty.n_columns is not None:
            own = glru.L2(0.1) if isinstance(problem.penalty, glru.L2) else glru.ElasticNet(0.1, 0.01)
        return glru.AddColumns(block, own)
    if kind == "edit":
        columns = random.permutation(d)[: max(1, d // 2)]
        values = random.normal(0.0, 1.0, (rows.size, columns.size)) * np.broadcast_to(size, (d,))[columns]
        return glru.EditValues(rows, columns, values)
    if kind == "relabel":
        return glru.Relabel(rows, some_targets(rows.size))
    if kind == "reweight":
        return glru.Reweight(rows, 10.0 ** random.uniform(-6.0, 6.0, rows.size) * (random.random(rows.size) < 0.8))
    rows, y = random.normal(0.2, 1.0, (count, d)) * size, some_targets(count)
    return glru.AddRows(rows, y, offset=random.normal(0.0, 1.0, count) if problem.offset.any() else None)


def sparse_wide_problem(random: np.random.Generator) -> glru.Problem:
    """Rows of text in more columns, many of them with one value, spoiled like other problems: scales, weights and strengths of any size."""
    n = int(random.choice([2, 3, 5, 7]))
    d = n + int(random.integers(1, 5))
    X = np.abs(random.normal(size=(n, d))) * (random.random((n, d)) < random.choice([0.2, 0.5, 0.9]))
    X = np.where(X.any(axis=1)[:, None], X, np.eye(n, d))
    signs = np.where(random.random(n) < 0.5, 1.0, -1.0)
    draft = Draft(random, glru.Logistic(), X, signs, strength=10.0 ** random.uniform(-8.0, 8.0))
    recipes = (duplicates, leverage, scales, mild_scales, threshold, balanced, lone, weights, offset, denormals, plain)
    for recipe in random.choice(np.array((*recipes, mild_weights), dtype=object), random.integers(1, 4), replace=False):
        recipe(draft)
    y = signs if draft.signs is None else draft.signs
    y[:2] = -1.0, 1.0
    strength = draft.strength if random.random() < 0.7 else draft.strength * 10.0 ** random.uniform(-2.0, 2.0, d)
    weight = draft.weight if draft.weight is None or draft.weight.any() else None
    scaling, intercept = str(random.choice(["mean", "sum"])), bool(random.random() < 0.5)
    return glru.Problem(sp.csr_array(draft.X), y, draft.loss, glru.L2(strength), intercept, scaling, weight)


def hostile_wide_problem(random: np.random.Generator) -> glru.Problem:
    """A few rows in more columns: heavy ones, near copies, large common parts, tiny strengths."""
    n = int(random.integers(2, 6))
    d = n + int(random.integers(1, 4))
    X = random.normal(size=(n, d)) * 10.0 ** random.uniform(-1.0, 1.0, (n, 1))
    if random.random() < 0.3:
        X += 10.0 ** random.uniform(-1.0, 3.0)
    if random.random() < 0.5:
        X[1] = X[0] * 10.0 ** random.uniform(-0.5, 0.5) + 10.0 ** random.uniform(-7.0, -1.0) * random.normal(size=d)
    weight = 10.0 ** random.uniform(-4.0, 4.0, n) if random.random() < 0.5 else np.ones(n)
    weight[1] *= 10.0 ** random.uniform(0.0, 9.0) if random.random() < 0.5 else 1.0
    options = {"penalty": glru.L2(10.0 ** random.uniform(-8.0, 1.0)), "sample_weight": weight, "scaling": "sum"}
    options["fit_intercept"] = bool(random.random() < 0.4)
    if random.random() < 0.5:
        y = random.normal(size=n) * 10.0 ** random.uniform(-2.0, 4.0, n)
        return glru.Problem(X, y, glru.Squared(), **options)
    y = np.where(random.random(n) < 0.5, 1.0, -1.0)
    y[:2] = -1.0, 1.0
    return glru.Problem(X, y, glru.Logistic(), **options)


def problem_with_far_rows(random: np.random.Generator) -> glru.Problem:
    """A few rows far out among small ones, with strengths from nothing to far above what the data weighs."""
    n, d = int(random.choice([4, 6, 9, 12, 16])), int(random.choice([1, 1, 2, 3]))
    loss = glru.Logistic() if random.random() < 0.7 else glru.Squared()
    X = random.normal(random.choice([0.0, 0.3, 3.0]), 1.0, (n, d)) * 10.0 ** random.uniform(-4.0, 0.0)
    far = int(random.integers(1, 3))
    X[:far] = np.sign(X[:far]) * (1.0 + random.random((far, d))) * 10.0 ** random.uniform(0.0, 6.0, (far, 1))
    X = X * 10.0 ** random.uniform(-6.0, 6.0, d if random.random() < 0.3 else 1)
    largest = np.abs(X).max(axis=0)
    z = (X / largest) @ random.normal(0.0, 3.0, d) + random.normal(0.0, random.choice([0.01, 1.0]), n)
    y = z * 10.0 ** random.choice([-4, 0, 4]) if loss.task == "regression" else np.where(z > np.median(z), 1.0, -1.0)
    if loss.task != "regression" and random.random() < 0.5:
        y[:far] = random.choice([-1.0, 1.0]) * np.sign(X[:far, 0])
        y[-1] = -y[0]
    weight = 10.0 ** random.uniform(-3.0, 3.0, n) if random.random() < 0.3 else None
    strength = 10.0 ** (random.uniform(-14.0, 0.0) if random.random() < 0.7 else random.uniform(2.0, 16.0))
    lam = strength * largest.max() ** 2
    scaling, fit_intercept = str(random.choice(["mean", "sum"])), bool(random.random() < 0.3)
    data = sp.csr_array(X) if random.random() < 0.25 else X
    return glru.Problem(data, y, loss, glru.L2(lam), fit_intercept, scaling, weight)


def problem_with_similar_columns(random: np.random.Generator) -> glru.Problem:
    """The last column is nearly constant, nearly another one, or far longer; the first ones may be unpenalised."""
    n, d = int(random.choice([4, 6, 9])), int(random.choice([2, 3, 4, 5]))
    loss = glru.Logistic() if random.random() < 0.7 else glru.Squared()
    X = random.normal(random.choice([0.0, 0.3, 3.0]), 1.0, (n, d))
    close = 10.0 ** random.uniform(-9.0, -2.0)
    match int(random.integers(4)):
        case 0:
            X[:, -1] += 10.0 ** random.uniform(0.0, 7.0)
        case 1:
            X[:, -1] = X[:, 0] * (1.0 + close * X[:, -1])
        case 2:
            X[:, -1] = 10.0 ** random.uniform(0.0, 5.0) * (X[:, 0] + close * X[:, -1])
        case _:
            X *= 10.0 ** random.uniform(-6.0, 6.0, d)
    z = (X / np.abs(X).max(axis=0)) @ random.normal(0.0, 3.0, d) + random.normal(0.0, random.choice([0.01, 1.0]), n)
    y = z * 10.0 ** random.choice([-4, 0, 4]) if loss.task == "regression" else np.where(z > np.median(z), 1.0, -1.0)
    lam = 10.0 ** random.uniform(-6.0, 3.0) * 10.0 ** random.uniform(-2.0, 2.0, d)
    lam[: int(random.choice([0, 0, 1]))] = 0.0
    fit_intercept, scaling = bool(random.random() < 0.6), str(random.choice(["mean", "sum"]))
    return glru.Problem(X, y, loss, glru.L2(lam), fit_intercept, scaling)
