"""The path of a stepwise search by its definition, every candidate trained to 40 digits."""

from decimal import Decimal

import numpy as np

import glru
from tests.certificates.exact import decimals, in_decimals, optimum, precise, slope_and_curvature, solved

RESOLUTION = {"error": 0.0, "log_loss": 1e-9, "squared_error": 1e-9}
"""Values closer than this share of the present one count as equal."""


def judged_by(problem, X_val, y_val, splits):
    """Training problems and the rows that judge them: validation rows, or the folds."""
    if splits is None:
        return [(problem, X_val, y_val)]
    judges = []
    for train, test in splits:
        weight = np.zeros(problem.n_rows)
        weight[train] = problem.sample_weight[train]
        judges.append((problem.derive(sample_weight=weight), problem.X[test], problem.y[test]))
    return judges


def held_out_scores(problem, chosen, X_val):
    """Exact scores of the model of some columns; None where the optimum is not unique."""
    if not chosen and not problem.fit_intercept:
        return [Decimal(0)] * len(X_val)
    if chosen:
        sub = problem.derive(X=problem.X[:, chosen], penalty=problem.penalty.select(np.array(chosen)))
        queries = X_val[:, chosen]
    else:
        # A column of zeros stands for none.
        sub = problem.derive(X=np.zeros((problem.n_rows, 1)), penalty=glru.L2(1.0))
        queries = np.zeros((len(X_val), 1))
    near = glru.solve(sub, tol=1e-12)
    best = optimum(sub, near.coef, near.intercept)
    return None if best is None else best.scores(queries)


@precise
def degrees_of_freedom(problem, scores):
    """The trace of the hat matrix of all columns of a problem, at some scores; the number of columns without a penalty."""
    exact = in_decimals(problem)
    ones = np.full((problem.n_rows, 1), Decimal(1), dtype=object)
    design = np.hstack([exact.X, ones]) if problem.fit_intercept else exact.X
    strengths = [*exact.lam, *([Decimal(0)] if problem.fit_intercept else [])]
    pairs = zip(exact.y, [Decimal(z) for z in scores], strict=True)
    curvatures = np.array([slope_and_curvature(problem.loss, y, z)[1] for y, z in pairs], dtype=object)
    gram = design.T @ ((exact.weights * curvatures)[:, None] * design)
    hessian = gram + np.diag(strengths)
    return sum(solved(hessian.copy(), list(gram[:, j]))[j] for j in range(len(strengths)))


@precise
def exact_information(problem, chosen, criterion):
    """AIC or BIC of the model of some columns, as statsmodels counts them; None where the optimum is not unique."""
    scores = held_out_scores(problem, chosen, problem.X)
    if scores is None:
        return None
    weights = decimals(problem.sample_weight)
    total = sum(weights)
    price = Decimal(2) if criterion == "aic" else total.ln()
    sub = problem.derive(X=problem.X[:, chosen], penalty=problem.penalty.select(np.array(chosen, dtype=int)))
    dof = degrees_of_freedom(sub, scores) if chosen else Decimal(int(problem.fit_intercept))
    name = "log_loss" if problem.loss.task == "classification" else "squared_error"
    value = sum(w * term(name, y, z) for w, y, z in zip(weights, problem.y, scores, strict=True))
    if name == "squared_error":
        return total * ((2 * PI * value / total).ln() + 1) + price * dof
    return 2 * value + price * dof


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")


def term(criterion, y, score):
    y = Decimal(float(y))
    if criterion == "error":
        return Decimal(int(y * score <= 0))
    return (y - score) ** 2 if criterion == "squared_error" else (1 + (-y * score).exp()).ln()


@precise
def exact_path(
    problem, X_val=None, y_val=None, splits=None, criterion="squared_error", direction="backward", groups=None
):
    """The columns of every step, an empty one where the search stops; None where some optimum is not unique."""
    sets = groups or [(j,) for j in range(problem.n_columns)]
    judges, known = judged_by(problem, X_val, y_val, splits), {}

    def value(columns):
        chosen = sorted(columns)
        if criterion in ("aic", "bic") and tuple(chosen) not in known:
            known[tuple(chosen)] = exact_information(problem, chosen, criterion)
            if known[tuple(chosen)] is None:
                raise ArithmeticError
        if tuple(chosen) not in known:
            total = Decimal(0)
            for part, queries, targets in judges:
                scores = held_out_scores(part, chosen, queries)
                if scores is None:
                    raise ArithmeticError
                total += sum(term(criterion, y, z) for y, z in zip(targets, scores, strict=True))
            known[tuple(chosen)] = total
        return known[tuple(chosen)]

    chosen, path = set() if direction == "forward" else set(range(problem.n_columns)), []
    try:
        while True:
            moves = []
            for group in sets:
                if group[0] in chosen and direction != "forward" and len(chosen) > len(group):
                    moves.append((group, chosen - set(group)))
                elif group[0] not in chosen and direction != "backward":
                    moves.append((group, chosen | set(group)))
            if not moves:
                return path
            values = [value(chosen), *(value(after) for _, after in moves)]
            share = values[0] if criterion in RESOLUTION else Decimal(float(problem.sample_weight.sum()))
            least = min(values) + Decimal(RESOLUTION.get(criterion, 1e-9)) * share
            winner = next(k for k, v in enumerate(values) if v <= least)
            if winner == 0:
                return [*path, ()]
            path.append(moves[winner - 1][0])
            chosen = moves[winner - 1][1]
    except ArithmeticError:
        return None
