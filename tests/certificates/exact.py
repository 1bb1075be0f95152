"""The optimum of a small problem to 60 digits, from the optimality conditions alone: the oracle of every bound.

Written without a line of ``glru``'s mathematics. A start near the optimum only saves steps: what is returned meets
the optimality conditions to 40 digits, and ``None`` where the conditions could not be met or do not fix the model.
"""

from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from functools import wraps

import numpy as np

import glru

DIGITS = 80
ZERO, ONE, FAR = Decimal(0), Decimal(1), Decimal(10**6)
CONTEXT = Context(prec=DIGITS, Emax=10**15, Emin=-(10**15))


def precise(function):
    """Run a function in 80-digit arithmetic."""

    @wraps(function)
    def run(*arguments, **options):
        with localcontext(CONTEXT):
            return function(*arguments, **options)

    return run


def decimals(values) -> np.ndarray:
    """Floats as decimals, exactly."""
    array = np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float64)
    out = np.empty(array.shape, dtype=object)
    out.ravel()[:] = [Decimal(float(v)) for v in array.ravel()]
    return out


@dataclass(frozen=True)
class Exact:
    """A problem in decimals."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray
    lam: np.ndarray
    kappa: np.ndarray
    loss: object
    intercept: bool

    def scores(self, w, b):
        return self.X @ w + b


@precise
def in_decimals(problem, ideal_weights=False) -> Exact:
    """The problem as it is stored, or with weights that were never rounded."""
    weights = decimals(problem.weights)
    if ideal_weights and problem.scaling == "mean":
        weights = decimals(problem.sample_weight)
        weights = weights / sum(weights)
    d = problem.n_columns
    strengths = (decimals(np.broadcast_to(a, (d,))) for a in (problem.penalty.quadratic, problem.penalty.absolute))
    return Exact(decimals(problem.X), decimals(problem.y), weights, *strengths, problem.loss, problem.fit_intercept)


def slope_and_curvature(loss, y: Decimal, z: Decimal) -> tuple[Decimal, Decimal]:
    """First and second derivative of a smooth loss."""
    match loss:
        case glru.Squared():
            return z - y, ONE
        case glru.Huber():
            edge = Decimal(loss.gamma)
            return (z - y, ONE) if abs(z - y) <= edge else (edge.copy_sign(z - y), ZERO)
        case glru.Logistic():
            miss = ONE / (ONE + min(max(y * z, -FAR), FAR).exp())
            return -y * miss, miss * (ONE - miss)
        case glru.SquaredHinge():
            short = ONE - y * z
            return (-2 * y * short, Decimal(2)) if short > 0 else (ZERO, ZERO)
        case glru.SmoothedHinge():
            edge, short = Decimal(loss.gamma), ONE - y * z
            if short <= 0:
                return ZERO, ZERO
            return (-y * short / edge, ONE / edge) if short <= edge else (-y, ZERO)
        case glru.Poisson():
            return z.exp() - y, z.exp()
        case glru.Gamma():
            return ONE - y * (-z).exp(), y * (-z).exp()
        case glru.Tweedie():
            a, b = 2 - Decimal(loss.power), Decimal(loss.power) - 1
            up, down = (a * z).exp(), y * (-b * z).exp()
            return up - down, a * up + b * down
        case glru.losses.Binomial():
            mean = ONE / (ONE + min(max(-z, -FAR), FAR).exp())
            return mean - y, mean * (ONE - mean)
        case glru.NegativeBinomial():
            theta, mean = Decimal(loss.theta), z.exp()
            return theta * (mean - y) / (theta + mean), (y + theta) * theta * mean / (theta + mean) ** 2
    raise TypeError(loss)


def derivatives(exact: Exact, w, b) -> tuple[np.ndarray, np.ndarray]:
    """Slopes and curvatures of all rows."""
    pairs = [slope_and_curvature(exact.loss, y, z) for y, z in zip(exact.y, exact.scores(w, b), strict=True)]
    return np.array([g for g, _ in pairs], dtype=object), np.array([h for _, h in pairs], dtype=object)


@dataclass(frozen=True)
class Optimum:
    """The retrained model: coefficients, intercept, training scores and dual variables."""

    coef: np.ndarray
    intercept: Decimal
    dual: np.ndarray

    @precise
    def scores(self, X) -> np.ndarray:
        """Scores of queries."""
        return decimals(X) @ self.coef + self.intercept


@precise
def optimum(problem, coef, intercept=0.0, ideal_weights=False) -> Optimum | None:
    """The optimum from a start near it, or None."""
    exact = in_decimals(problem, ideal_weights)
    w, b = decimals(coef), Decimal(float(intercept))
    solve = hinge_optimum if isinstance(problem.loss, glru.Hinge) else smooth_optimum
    return solve(exact, w, b)


def smooth_optimum(exact: Exact, w, b) -> Optimum | None:
    """Newton on the support, the signs of the coefficients fixed in each step."""
    ones = np.full((exact.X.shape[0], 1), ONE, dtype=object)
    design = np.hstack([exact.X, ones]) if exact.intercept else exact.X
    d = exact.X.shape[1]
    for _ in range(200):
        g, h = derivatives(exact, w, b)
        pull = exact.X.T @ (exact.weights * g) + exact.lam * w
        small = [
            k > 0 and abs(v) < Decimal("1e-7") and abs(p) < k for k, v, p in zip(exact.kappa, w, pull, strict=True)
        ]
        w = np.where(small, ZERO, w)
        g, h = derivatives(exact, w, b)
        pull = exact.X.T @ (exact.weights * g) + exact.lam * w
        signs = np.array([_sign(v) or -_sign(p) for v, p in zip(w, pull, strict=True)], dtype=object)
        on = [j for j in range(d) if exact.kappa[j] == 0 or w[j] != 0 or abs(pull[j]) > exact.kappa[j]]
        used = [*on, d] if exact.intercept else on
        residual = list(pull[on] + exact.kappa[on] * signs[on])
        residual += [exact.weights @ g] if exact.intercept else []
        part = design[:, used]
        matrix = part.T @ ((exact.weights * h)[:, None] * part)
        for place, j in enumerate(on):
            matrix[place, place] += exact.lam[j]
        move = solved(matrix, [-r for r in residual])
        if move is None:
            return None
        full = np.full(d, ZERO, dtype=object)
        full[on] = move[: len(on)]
        shift = move[-1] if exact.intercept else ZERO
        # Of every coefficient by what it does to a score, so that the units of the columns do not matter.
        parts = zip(full, w, abs(exact.X).max(axis=0), strict=True)
        still = all(abs(m) * x <= Decimal("1e-45") * (abs(v) * x + Decimal("1e-12")) for m, v, x in parts)
        if still and abs(shift) <= Decimal("1e-45") * (1 + abs(b)):
            off = [j for j in range(d) if j not in on]
            consistent = all(w[j] == 0 or _sign(w[j]) == signs[j] for j in on if exact.kappa[j] > 0)
            return Optimum(w, b, -g) if consistent and all(abs(pull[j]) <= exact.kappa[j] for j in off) else None
        w, b = _stepped(exact, w, b, full, shift, signs)
    return None


def _stepped(exact, w, b, move, shift, signs):
    """A step that does not overshoot; a coefficient that would change its sign stops at zero."""
    length = ONE
    along = exact.X @ move + shift

    def slope(at):
        v = w + at * move
        g, _ = derivatives(exact, v, b + at * shift)
        return (exact.weights * g) @ along + (exact.lam * v + exact.kappa * signs) @ move

    first = slope(ZERO)
    for _ in range(60):
        if slope(length) <= abs(first) / 2:
            break
        length /= 2
    new = w + length * move
    crossed = [k > 0 and _sign(v) * s < 0 for k, v, s in zip(exact.kappa, new, signs, strict=True)]
    return np.where(crossed, ZERO, new), b + length * shift


def hinge_optimum(exact: Exact, w, b) -> Optimum | None:
    """The quadratic program of the hinge, with its active set read off the start and then verified."""
    n, d = exact.X.shape
    short = np.full(n, ONE, dtype=object) - exact.y * exact.scores(w, b)
    weighty = [i for i in range(n) if exact.weights[i] > 0]
    edge = [i for i in weighty if abs(short[i]) < Decimal("1e-6")]
    on = [j for j in range(d) if exact.kappa[j] == 0 or abs(w[j]) > Decimal("1e-7")]
    slopes = np.array([ONE if u > 0 else ZERO for u in short], dtype=object)
    slopes[edge] = ZERO
    size = len(on) + int(exact.intercept) + len(edge)
    matrix, right = np.full((size, size), ZERO, dtype=object), np.full(size, ZERO, dtype=object)
    rows = exact.weights * exact.y
    for place, j in enumerate(on):
        matrix[place, place] = exact.lam[j]
        matrix[place, size - len(edge) :] = -(rows * exact.X[:, j])[edge]
        right[place] = (rows * exact.X[:, j]) @ slopes - exact.kappa[j] * _sign(w[j])
    if exact.intercept:
        matrix[len(on), size - len(edge) :] = rows[edge]
        right[len(on)] = -(rows @ slopes)
    for place, i in enumerate(edge, start=size - len(edge)):
        matrix[place, : len(on)] = exact.X[i, on]
        if exact.intercept:
            matrix[place, len(on)] = ONE
        right[place] = exact.y[i]
    move = solved(matrix, right)
    if move is None:
        return None
    new = np.full(d, ZERO, dtype=object)
    new[on] = move[: len(on)]
    intercept = move[len(on)] if exact.intercept else ZERO
    slopes[edge] = move[size - len(edge) :]
    return _verified_hinge(exact, new, intercept, slopes, edge, on)


def _verified_hinge(exact, w, b, slopes, edge, on) -> Optimum | None:
    short = np.full(len(slopes), ONE, dtype=object) - exact.y * exact.scores(w, b)
    free = [i for i in range(len(slopes)) if i not in edge and exact.weights[i] > 0]
    right = all((short[i] > 0) == (slopes[i] == ONE) for i in free) and all(ZERO <= slopes[i] <= ONE for i in edge)
    pull = exact.X.T @ (exact.weights * exact.y * slopes) - exact.lam * w
    right &= all(abs(pull[j]) <= exact.kappa[j] for j in range(len(w)) if j not in on)
    right &= all(w[j] * pull[j] > 0 for j in on if exact.kappa[j] > 0)
    return Optimum(w, b, exact.y * slopes) if right else None


def solved(matrix, right):
    """Gaussian elimination with scaled rows and pivoting; None where the matrix is singular."""
    size = len(right)
    system = np.hstack([np.array(matrix, dtype=object), np.array(right, dtype=object).reshape(size, 1)])
    for k in range(size):
        sizes = [max((abs(v) for v in system[i, k:size]), default=ZERO) for i in range(k, size)]
        ratios = [abs(system[k + i, k]) / s if s > 0 else ZERO for i, s in enumerate(sizes)]
        best = max(range(len(ratios)), key=ratios.__getitem__)
        if ratios[best] < Decimal("1e-55"):
            return None
        system[[k, k + best]] = system[[k + best, k]]
        for i in range(k + 1, size):
            if system[i, k] != 0:
                system[i, k:] = system[i, k:] - (system[i, k] / system[k, k]) * system[k, k:]
    out = np.full(size, ZERO, dtype=object)
    for k in reversed(range(size)):
        out[k] = (
            (system[k, size] - system[k, k + 1 : size] @ out[k + 1 :]) / system[k, k]
            if k + 1 < size
            else (system[k, size] / system[k, k])
        )
    return out


def _sign(v: Decimal) -> int:
    return (v > 0) - (v < 0)


@precise
def norm(values) -> Decimal:
    """Euclidean norm."""
    return sum((v * v for v in values), ZERO).sqrt()


@precise
def outside(values, lower, upper) -> list[int]:
    """Positions whose exact value is not between its bounds; infinite bounds hold, NaN never does."""
    found = []
    for place, (value, low, high) in enumerate(zip(values, np.atleast_1d(lower), np.atleast_1d(upper), strict=True)):
        below = low == -np.inf or Decimal(float(low)) <= value if not np.isnan(low) else False
        above = high == np.inf or value <= Decimal(float(high)) if not np.isnan(high) else False
        if not (below and above):
            found.append(place)
    return found


@precise
def gap(problem, coef, dual, intercept=0.0) -> Decimal:
    """``P - D`` of a float64 pair, straight from the definitions; the dual point must be feasible."""
    exact = in_decimals(problem)
    w, a = decimals(coef), decimals(dual)
    v = exact.X.T @ (exact.weights * a)
    scores = exact.scores(w, Decimal(float(intercept)))
    total = ZERO
    for s, y, z, slope in zip(exact.weights, exact.y, scores, -a, strict=True):
        total += s * (loss_value(exact.loss, y, z) + loss_conjugate(exact.loss, y, slope)) if s > 0 else ZERO
    for lam, kappa, t, u in zip(exact.lam, exact.kappa, w, v, strict=True):
        total += lam * t * t / 2 + kappa * abs(t) + max(abs(u) - kappa, ZERO) ** 2 / (2 * lam)
    return total


def loss_value(loss, y: Decimal, z: Decimal) -> Decimal:
    """The loss of a row."""
    short, residual = max(ONE - y * z, ZERO), abs(z - y)
    match loss:
        case glru.Squared():
            return residual**2 / 2
        case glru.Huber():
            edge = Decimal(loss.gamma)
            return residual**2 / 2 if residual <= edge else edge * (residual - edge / 2)
        case glru.Logistic():
            return (ONE + (-y * z).exp()).ln()
        case glru.SquaredHinge():
            return short**2
        case glru.SmoothedHinge():
            edge = Decimal(loss.gamma)
            return short**2 / (2 * edge) if short <= edge else short - edge / 2
        case glru.Hinge():
            return short
    raise TypeError(loss)


def loss_conjugate(loss, y: Decimal, slope: Decimal) -> Decimal:
    """Its convex conjugate, inside the domain."""
    q = -y * slope
    match loss:
        case glru.Squared() | glru.Huber():
            return slope**2 / 2 + slope * y
        case glru.Logistic():
            return sum((t * t.ln() for t in (q, ONE - q) if t > 0), ZERO)
        case glru.SquaredHinge():
            return q**2 / 4 - q
        case glru.SmoothedHinge():
            return Decimal(loss.gamma) * q**2 / 2 - q
        case glru.Hinge():
            return -q
    raise TypeError(loss)


@precise
def sums(exact: Exact, dual) -> tuple[np.ndarray, np.ndarray]:
    """``sum_i s_i a_i x_ij`` and ``sum_i s_i x_ij^2`` of every column."""
    return exact.X.T @ (exact.weights * dual), (exact.X * exact.X).T @ exact.weights


@precise
def reach(exact: Exact) -> tuple[list, list] | None:
    """The ends of ``sum_i s_i a_i x_ij`` over the domain of the dual; None where the domain is unbounded."""
    match exact.loss:
        case glru.Squared() | glru.SquaredHinge():
            return None
        case glru.Huber():
            edge = Decimal(exact.loss.gamma)
            half = [edge * sum(exact.weights * abs(column)) for column in exact.X.T]
            return [-h for h in half], half
    pulls = exact.X.T * exact.weights * exact.y
    return [sum(min(p, ZERO) for p in row) for row in pulls], [sum(max(p, ZERO) for p in row) for row in pulls]


@precise
def feasible_gap(problem, coef, intercept, dual, free) -> Decimal:
    """``P - D`` of a pair whose dual point (in decimals) meets the constraints of the intercept and of ``free`` columns."""
    exact = in_decimals(problem)
    w, scores = decimals(coef), exact.scores(decimals(coef), Decimal(float(intercept)))
    v, _ = sums(exact, dual)
    total = ZERO
    for s, y, z, slope in zip(exact.weights, exact.y, scores, -dual, strict=True):
        total += s * (loss_value(exact.loss, y, z) + loss_conjugate(exact.loss, y, slope))
    for j, (lam, kappa, t, u) in enumerate(zip(exact.lam, exact.kappa, w, v, strict=True)):
        total += lam * t * t / 2 + kappa * abs(t)
        total += ZERO if j in free else max(abs(u) - kappa, ZERO) ** 2 / (2 * lam)
    return total
