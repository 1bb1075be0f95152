"""What is returned, not only what is bounded: trained models, labels, choices, and what a search or a live model says.

A label is held against the exact score as half a line: above zero, or not. What is marked open (0, masked, NaN, not
determined) is the whole line.
"""

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import KFold, StratifiedKFold

import glru
from glru.live import ChangeEntry, UndeterminedError
from glru.verify.report import _criterion
from glru.verify.retraining import retrain
from tests.attack.cases import DIGITS, Answer, left_out, some_queries
from tests.attack.generators import hostile_change, hostile_problem, unscaled_problem, unscaled_rows
from tests.attack.models import Model, classifier, labelled, regressor
from tests.core import as_matrix, list_regions, score_bounds

ABOVE = float(np.nextafter(0.0, 1.0))

REFUSED = ("every split needs", "needs both classes", "leave-one-out needs", "each class needs", "a change must leave")
"""What is rightly refused: data that leaves nothing to train on."""

RESOLUTION = {"error": 0.0, "log_loss": 1e-9, "squared_error": 1e-9}
"""Values of a search closer than this share of the present one count as equal."""


def silently(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """A call whose words about open answers are not needed: the answers themselves must say it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*(not proven|proven only to within)")
        return call(*arguments, **named)


def permitted(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The same; None where the data is refused, rightly."""
    try:
        return silently(call, *arguments, **named)
    except ValueError as error:
        if any(words in str(error) for words in REFUSED):
            return None
        raise


def fact(name: str, holds: bool) -> Answer:
    """A statement that is true or not, as a number that is 0."""
    return name, [(0 if holds else 1, 0)], [0.0], [0.0]


def sign_answer(name: str, exact: list[Any], labels: Any) -> Answer:
    """Labels +1 and -1 with 0 for open ones, of exact scores."""
    labels = np.asarray(labels)
    return name, exact, np.where(labels > 0, ABOVE, -np.inf), np.where(labels < 0, 0.0, np.inf)


def label_answer(name: str, columns: list[list[Any]], classes: np.ndarray, labels: Any) -> Answer:
    """Labels, masked where open, of exact scores: by how much each beats the others. A tie goes to the first class, as in ``predict``."""
    margins, mask, strict = [], np.ma.getmaskarray(labels), []
    for k, label in enumerate(np.ma.getdata(labels)):
        place = int(np.flatnonzero(classes == label)[0])
        if len(columns) == 1:
            value, off = columns[0][k]
            margins.append((value if place else -value, off))
        else:
            best, off = columns[place][k]
            # Of others with the same score the first counts.
            other = max((i for i in range(len(columns)) if i != place), key=lambda i: columns[i][k][0])
            margins.append((best - columns[other][k][0], off + max(column[k][1] for column in columns)))
        strict.append(place > 0 if len(columns) == 1 else other < place)
    lower = np.where(mask, -np.inf, np.where(strict, ABOVE, 0.0))
    return name, margins, lower, np.full(lower.shape, np.inf)


def any_problem(random: np.random.Generator) -> glru.Problem:
    """A hostile problem, or one of unscaled columns."""
    return hostile_problem(random) if random.random() < 0.4 else unscaled_problem(random)


def warm_starts(random: np.random.Generator) -> Iterator[Answer]:
    """Trainings after a change, from the best candidate and from starts far away: they end as well as one from zero."""
    problem = any_problem(random)
    change = hostile_change(random, problem)
    changed = change.apply(problem)
    tol = float(random.choice([1e-3, 1e-6, 1e-9]))
    old = silently(glru.solve, problem, tol=float(random.choice([1e-1, 1e-6, 1e-12])))
    cold = silently(glru.solve, changed, tol=tol)
    out = glru.after(old, change)
    trained = {"retrain": silently(out.retrain, tol=tol), "cold": cold}
    base, n = out.point, changed.n_columns
    for scale in (1e2, 1e4, 1e6):
        around = scale * random.normal(0.0, 1.0, n) * (float(np.abs(cold.coef).max(initial=0.0)) or 1.0)
        starts = [
            glru.Point(scale * base.coef, scale * base.intercept),
            glru.Point(-scale * cold.coef, -scale * cold.intercept, cold.dual),
            glru.Point(around, scale * float(random.normal())),
            glru.Point(np.zeros(n), scale),
        ]
        for k, start in enumerate(starts):
            if all(
                np.all(np.isfinite(part))
                for part in (start.coef, start.intercept, [] if start.dual is None else start.dual)
            ):
                trained[f"start {k} x {scale:g}"] = silently(glru.solve, changed, tol=tol, start=start)
    for name, solution in trained.items():
        if cold.status == "converged":
            yield fact(f"warm start converges: {name}", solution.status == "converged" and solution.reached(tol))
    truth = retrain(changed, DIGITS)
    if truth is None or out.remark is not None:  # without an optimum there is nothing to compare with
        return
    queries = some_queries(random, changed)[-40:]
    exact = truth.scores(queries)
    lam = np.broadcast_to(changed.penalty.quadratic, (n,))
    for name, solution in trained.items():
        with np.errstate(all="ignore"):
            proof = solution.certificate
            regions = list_regions(proof, changed.fit_intercept)
            lower, upper = score_bounds(regions, as_matrix(queries), proof.columns.dead)
        yield f"warm start, scores: {name}", exact, lower, upper
        labels = np.where(lower > 0.0, 1, np.where(upper < 0.0, -1, 0))
        scores = queries @ solution.coef + solution.intercept
        # A trained model is not told apart from zero below the numbers whose squares underflow.
        known = (labels != 0) & (np.abs(scores) > 1e-140)
        # A model within its gap need not have the optimum's signs: those count where its own scores lie within the bounds.
        known &= (lower <= scores) & (scores <= upper)
        yield sign_answer(f"warm start, labels: {name}", exact, np.where(known, np.sign(scores), 0))
        off = [truth.mp.mpf(float(w)) - v for w, v in zip(solution.coef, truth.coef, strict=True)]
        far = sum((truth.mp.mpf(float(s)) * m * m / 2 for s, m in zip(lam, off, strict=True)), truth.mp.zero)
        doubt = sum(
            (truth.mp.mpf(float(s)) * abs(m) * d for s, m, d in zip(lam, off, truth.doubts[:-1], strict=True)),
            truth.mp.mpf(np.finfo(np.float64).tiny),  # what underflows of a gap is left to the radius
        )
        gap = proof.gap
        yield f"warm start, gap: {name}", [(far, doubt)], [0.0 if np.isfinite(gap) else -np.inf], [gap]


def _targets(y: np.ndarray, classes: np.ndarray | None, k: int) -> np.ndarray:
    """What the ``k``-th problem sees: numbers, or +1 for its positive class."""
    if classes is None:
        return y
    return np.where(y == classes[1 if classes.size == 2 else k], 1.0, -1.0)


def _splits(random: np.random.Generator, X: np.ndarray, y: np.ndarray, regression: bool) -> list[Any]:
    plain = regression or random.random() < 0.3 or min(np.unique(y, return_counts=True)[1]) < 4
    kind = (KFold if plain else StratifiedKFold)(
        int(random.choice([2, 3, 4])), shuffle=True, random_state=int(random.integers(2**31))
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a class with few rows
        return list(kind.split(X, y))


def _held_out(
    model: Model, X: np.ndarray, y: np.ndarray, splits: list[Any], classes: np.ndarray | None
) -> list[Any] | None:
    """Exact held-out scores, one list a problem; None where a fold has no optimum that is found."""
    count = 1 if classes is None or classes.size == 2 else classes.size
    columns: list[list[Any]] = [[None] * len(y) for _ in range(count)]
    for train, test in splits:
        for k, column in enumerate(columns):
            exact = model.exact_scores(X[train], _targets(y, classes, k)[train], X[test])
            if exact is None:
                return None
            for row, pair in zip(test, exact, strict=True):
                column[row] = pair
    return columns


def fold_labels(random: np.random.Generator) -> Iterator[Answer]:
    """``cross_val_predict`` and ``cross_val_score`` of estimators on unscaled data: labels, scores and accuracies."""
    n_classes = int(random.choice([1, 2, 2, 2, 3]))
    model = regressor(random) if n_classes == 1 else classifier(random, n_classes == 2)
    X, y = labelled(random, n_classes)
    classes = None if n_classes == 1 else np.unique(y)
    if n_classes == 3 or model.absolute:
        X = X[:, :4]  # three models a fold, or an elastic net, which trains slowly where columns differ in size
    splits = _splits(random, X, y, n_classes == 1)
    found = permitted(glru.cross_val_predict, model.estimator, X, y, cv=splits)
    if found is None:
        return
    columns = _held_out(model, X, y, splits, classes)
    if columns is None:
        return
    kind = type(model.estimator).__name__
    if classes is not None:
        yield label_answer(f"labels of folds: {kind}", columns, classes, found)
        accuracy = permitted(glru.cross_val_score, model.estimator, X, y, cv=splits)
        yield _accuracy_answer(kind, columns, classes, y, splits, accuracy)
    width = 1e-4 * (1.0 if classes is not None else float(np.ptp(y)) or 1.0)
    method = "predict" if classes is None else "decision_function"
    yield from _score_answers(f"scores of folds: {kind}", columns, model, X, y, splits, method, width)


def _accuracy_answer(kind: str, columns: Any, classes: np.ndarray, y: np.ndarray, splits: Any, accuracy: Any) -> Answer:
    """Accuracies of folds; NaN is open, and so is a fold whose exact labels the retraining itself does not tell."""
    exact, open_ = [], np.isnan(accuracy)
    for k, (_, test) in enumerate(splits):
        hits = 0
        for row in test:
            scores = [column[row] for column in columns]
            ranked = sorted(((v, c) for c, (v, _) in enumerate(scores)), reverse=True)
            place = int(scores[0][0] > 0) if len(scores) == 1 else ranked[0][1]
            lead = abs(scores[0][0]) if len(scores) == 1 else ranked[0][0] - ranked[1][0]
            open_[k] |= lead <= 2 * max(off for _, off in scores)
            hits += classes[place] == y[row]
        exact.append((hits / len(test), 1e-15))
    return f"accuracies of folds: {kind}", exact, np.where(open_, -np.inf, accuracy), np.where(open_, np.inf, accuracy)


def _score_answers(
    name: str, columns: Any, model: Model, X: Any, y: Any, splits: Any, method: str, width: float
) -> Iterator[Answer]:
    """Returned scores are the middle of intervals that are as wide as said, or a warning says how wide they are."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        values = glru.cross_val_predict(model.estimator, X, y, cv=splits, method=method)
    if any("proven only to within" in str(warning.message) for warning in told):
        return
    mask, data = np.ma.getmaskarray(values), np.ma.getdata(values)
    half = 0.5 * width + 1e-15 * np.abs(data)
    lower, upper = np.where(mask, -np.inf, data - half), np.where(mask, np.inf, data + half)
    for k, column in enumerate(columns):
        pick = (slice(None), k) if data.ndim == 2 else slice(None)
        yield name, column, lower[pick], upper[pick]


def problem_labels(random: np.random.Generator) -> Iterator[Answer]:
    """Labels of a problem: folds, leave-one-out and ``after``, and what is returned where bounds have no end."""
    problem = any_problem(random)
    solution = silently(glru.solve, problem, tol=float(random.choice([1e-1, 1e-6, 1e-12])))
    change = hostile_change(random, problem)
    changed = change.apply(problem)
    truth = retrain(changed, DIGITS)
    if truth is not None:
        queries = some_queries(random, changed)
        out = glru.after(solution, change)
        exact, bounds = truth.scores(queries), out.score_bounds(queries)
        yield "after, scores", exact, *bounds
        yield sign_answer("after, labels", exact, out.score_bounds(queries).signs)
        yield "after, coefficients", list(zip(truth.coef, truth.doubts[:-1], strict=True)), *out.coef_bounds()
    classification = problem.loss.task == "classification"
    splits = _splits(random, problem.X, problem.y, not classification) if problem.n_rows > 4 else []
    folds = permitted(glru.cross_val_predict, solution, cv=splits, max_seconds=2.0) if splits else None
    for fold, (train, _) in enumerate(splits if folds is not None else []):
        weight = np.zeros(problem.n_rows)
        weight[train] = problem.sample_weight[train]
        truth, mine = retrain(problem.derive(sample_weight=weight), DIGITS), folds.folds == fold
        if truth is None:
            continue
        exact = truth.scores(problem.X[folds.rows[mine]])
        yield "folds of a problem, scores", exact, *_middles(folds.scores, folds.score_lower, folds.score_upper, mine)
        if classification:
            yield sign_answer("folds of a problem, labels", exact, folds.bounds.signs[mine])
    if max(problem.n_rows, problem.n_columns) > 12:
        return
    result = permitted(glru.loocv, solution, max_seconds=2.0)
    if result is None:
        return
    rows, exact = left_out(problem)
    if not rows.size:
        return
    yield "leave-one-out, scores", exact, *_middles(result.scores, result.score_lower, result.score_upper, rows)
    if classification:
        yield sign_answer("leave-one-out, labels", exact, result.bounds.signs[rows])


def _middles(scores: Any, lower: Any, upper: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores that are returned, give or take half of their interval: all that their reader can know; not finite: open."""
    with np.errstate(invalid="ignore"):
        half = 0.5 * (upper - lower) * (1 + 1e-15) + 1e-15 * np.abs(scores)
        known = np.isfinite(scores)
        return np.where(known, scores - half, -np.inf)[rows], np.where(known, scores + half, np.inf)[rows]


class Mirror:
    """A live model beside plain arrays to which the same happens."""

    def __init__(self, random: np.random.Generator, model: Model, keys: bool = False) -> None:
        self.random, self.model = random, model
        self.X, self.y = labelled(random, 1 if model.regression else 2, live=True)
        self.classes = None if model.regression else np.unique(self.y)
        self.live = glru.LiveModel(model.estimator, tol=float(random.choice([1e-2, 1e-6])))
        silently(self.live.fit, self.X, self.y, keys=[f"first {k}" for k in range(len(self.y))] if keys else None)

    def change(self) -> None:
        """One change of rows or columns."""
        random, (n, d) = self.random, self.X.shape
        match str(random.choice(["out", "in", "columns out", "columns in"])):
            case "out":
                gone = random.choice(n, int(random.integers(1, 3)), replace=False)
                kept = np.delete(self.y, gone)
                if kept.size > 3 and (self.classes is None or np.unique(kept).size == 2):
                    self.live.remove_rows(gone)
                    self.X, self.y = np.delete(self.X, gone, axis=0), kept
            case "in":
                X, y = self.rows(int(random.integers(1, 3)))
                self.live.add_rows(X, y)
                self.X, self.y = np.vstack([self.X, X]), np.append(self.y, y)
            case "columns out" if d > 1:
                gone = random.choice(d, 1)
                self.live.remove_columns(gone)
                self.X = np.delete(self.X, gone, axis=1)
            case "columns in":
                columns, _ = unscaled_rows(random, n, int(random.integers(1, 3)))
                self.live.add_columns(columns)
                self.X = np.hstack([self.X, columns])

    def rows(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """New rows like the present ones."""
        at = self.random.integers(len(self.y), size=(2, count))
        X = self.X[at[0]] * (1.0 + 0.3 * self.random.normal(0.0, 1.0, (count, self.X.shape[1])))
        return X, self.y[at[1]]

    def queries(self, count: int = 40) -> np.ndarray:
        """Present rows and others like them."""
        return np.vstack([self.X, self.rows(count)[0]])

    def answers(self, name: str, live: glru.LiveModel, queries: np.ndarray) -> Iterator[Answer]:
        """Bounds and predictions of a live model against retraining on the plain arrays."""
        exact = self.model.exact_scores(self.X, _targets(self.y, self.classes, 0), queries)
        lower, upper = live.decision_bounds(queries)
        found = silently(live.predict_certified, queries)
        if exact is None:
            return
        yield f"{name}, bounds", exact, lower, upper
        yield f"{name}, bounds", exact, found.bounds.lower, found.bounds.upper
        if self.classes is not None:
            shown = np.ma.masked_array(found.predictions, mask=~found.decided)
            yield label_answer(f"{name}, labels", [exact], self.classes, shown)
        else:
            half = 0.5 * live._log.width + 1e-15 * np.abs(found.predictions)
            low, high = found.predictions - half, found.predictions + half
            known = found.decided
            yield f"{name}, predictions", exact, np.where(known, low, -np.inf), np.where(known, high, np.inf)
        try:
            plain = silently(live.predict, queries)
        except UndeterminedError as error:
            still = np.flatnonzero(~silently(live.predict_certified, queries).decided)
            yield fact(f"{name}, open rows are named", error.rows.size > 0 and np.array_equal(error.rows, still))
        else:
            if self.classes is not None:
                yield label_answer(f"{name}, labels of predict", [exact], self.classes, plain)


def live_models(random: np.random.Generator) -> Iterator[Answer]:
    """A live model after sequences of changed rows and columns."""
    model = regressor(random) if random.random() < 0.25 else classifier(random, live=True)
    mirror = Mirror(random, model)
    for _ in range(4):
        for _ in range(int(random.integers(1, 4))):
            mirror.change()
        if random.random() < 0.3:
            silently(mirror.live.refresh)
        yield from mirror.answers("live model", mirror.live, mirror.queries())


def threads(random: np.random.Generator) -> Iterator[Answer]:
    """Threads that change one live model; then it is what its own history leaves, and what exact retraining says."""
    model = classifier(random, live=True)
    mirror = Mirror(random, model, keys=True)
    first_X, first_y = mirror.X, mirror.y
    rows = {f"first {k}": (x, label) for k, (x, label) in enumerate(zip(first_X, first_y, strict=True))}
    stays = [int(np.flatnonzero(first_y == label)[k]) for label in mirror.classes for k in (0, 1)]
    free = random.permutation([k for k in range(len(first_y)) if k not in stays])
    expected, plans = set(rows), []
    for who, mine in enumerate(np.array_split(free, 3)):
        X, y = mirror.rows(4)
        plan: list[Any] = [("remove", f"first {k}") for k in mine[: max(1, len(mine) // 2)]]
        for k in range(4):
            rows[f"{who} {k}"] = (X[k], y[k])
            plan.append(("add", f"{who} {k}"))
        plan = [plan[k] for k in random.permutation(len(plan))] + [("remove", f"{who} {k}") for k in range(2)]
        for action, key in plan:
            expected.add(key) if action == "add" else expected.discard(key)
        plans.append(plan)
    queries = mirror.queries(40)
    _at_once(mirror.live, plans, rows, queries)
    keys = mirror.live.keys
    yield fact(
        "threads: every change is there", set(keys) == expected and mirror.live.n_rows == len(expected) == len(keys)
    )
    replay = glru.LiveModel(model.estimator, tol=mirror.live._tol)
    silently(replay.fit, first_X, first_y, keys=[f"first {k}" for k in range(len(first_y))])
    for entry in mirror.live.history:
        if isinstance(entry, ChangeEntry):
            _perform(replay, "add" if entry.kind == "add_rows" else "remove", entry.keys[0], rows)
    yield fact("threads: the replay has the same rows", replay.keys == keys)
    mirror.X, mirror.y = np.array([rows[key][0] for key in keys]), np.array([rows[key][1] for key in keys])
    yield from mirror.answers("threads", mirror.live, queries)
    yield from mirror.answers("threads, replay", replay, queries)


def _perform(live: glru.LiveModel, action: str, key: str, rows: Any) -> None:
    if action == "remove":
        live.remove_rows(keys=[key])
    else:
        live.add_rows(rows[key][0][None], [rows[key][1]], keys=[key])


def _at_once(live: glru.LiveModel, plans: list[Any], rows: Any, queries: np.ndarray) -> None:
    """Changes of several threads while another one asks and trains; the first error of any is raised."""
    errors: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            errors.append(error)

    def ask() -> None:
        for _ in range(3):
            live.predict_certified(queries)
        live.refresh()

    def change(plan: Any) -> Callable[[], None]:
        return lambda: [_perform(live, *step, rows) for step in plan] and None

    works = [*(change(plan) for plan in plans), ask]
    workers = [threading.Thread(target=run, args=(work,)) for work in works]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        # Warnings are one setting of the whole process, so that it is set here and not in the threads.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    finally:
        sys.setswitchinterval(before)
    if errors:
        raise errors[0]


def searches(random: np.random.Generator) -> Iterator[Answer]:
    """Searches over folds with groups: a step that is called proven is the exact choice from the columns it starts from."""
    loss = (glru.Squared(), glru.Huber(0.5), glru.Huber(1e3), glru.Logistic(), glru.SquaredHinge())[random.integers(5)]
    n, d = int(random.choice([10, 16, 24])), int(random.choice([3, 4, 5]))
    X, z = unscaled_rows(random, n, d) if random.random() < 0.5 else _plain_rows(random, n, d)
    if random.random() < 0.3:
        X[:, -1] = X[:, 0]
    regression = loss.task == "regression"
    y = z if regression else np.where(z > np.median(z), 1.0, -1.0)
    penalty = glru.L2(10.0 ** random.uniform(-4.0, 1.0))
    problem = glru.Problem(X, y, loss, penalty, bool(random.random() < 0.7), str(random.choice(["mean", "sum"])))
    criteria = ["squared_error"] if regression else ["error", "log_loss"] if loss.probabilities else ["error"]
    criterion = str(random.choice(criteria))
    labels = random.integers(0, d - 1, d).tolist() if random.random() < 0.6 else None
    splits = _splits(random, X, y, regression)
    result = permitted(
        glru.stepwise,
        problem,
        cv=splits,
        criterion=criterion,
        groups=labels,
        direction=str(random.choice(["backward", "forward", "both"])),
        method=str(random.choice(["certified", "certified", "glru"])),
        max_seconds=10.0,
    )
    if result is not None:
        yield from _choices(problem, splits, criterion, result)


def _plain_rows(random: np.random.Generator, n: int, d: int) -> tuple[np.ndarray, np.ndarray]:
    X = random.normal(0.0, 1.0, (n, d))
    return X, X @ random.normal(0.0, 1.0, d) + random.normal(0.0, 1.0, n)


def _choices(
    problem: glru.Problem, splits: Any, criterion: str, result: glru.results.StepwiseResult
) -> Iterator[Answer]:
    """Every step against the exact values of all its candidates."""
    known: dict[tuple[int, ...], Any] = {}

    def value(columns: set[int]) -> Any:
        key = tuple(sorted(columns))
        if key not in known:
            known[key] = _exact_value(problem, splits, criterion, list(key))
        return known[key]

    chosen = set(result.selected.tolist())
    for step in result.path:
        chosen ^= set(step.columns)
    for step, proven in zip(result.path, result.proven, strict=True):
        options = [chosen, *(chosen ^ set(columns) for _, columns in step.candidates)]
        values = [value(option) for option in options]
        for k, pair in enumerate(values[1:]):
            if pair is not None:
                yield "search, values", [pair], step.lower[k : k + 1], step.upper[k : k + 1]
        if None not in values:
            taken = options.index(chosen ^ set(step.columns)) if step.columns else 0
            yield _choice_answer(values, taken, RESOLUTION[criterion], proven)
        chosen ^= set(step.columns)


def _choice_answer(values: list[Any], taken: int, resolution: float, proven: bool) -> Answer:
    """The first value within the resolution of the least one; open where the step is, or the exact values are too close."""
    mp_values = [v for v, _ in values]
    edge = min(mp_values) + resolution * mp_values[0]
    winner = next(k for k, v in enumerate(mp_values) if v <= edge)
    # At the edge itself, a hair decides what counts as equal.
    hair = 1e-20 * max(abs(v) for v in mp_values) + 2 * max(off for _, off in values)
    close = resolution > 0.0 and any(abs(v - edge) <= hair for v in mp_values)
    if not proven or close:
        return "search, choices", [(0, 0)], [-np.inf], [np.inf]
    return "search, choices", [(winner, 0)], [float(taken)], [float(taken)]


def _exact_value(problem: glru.Problem, splits: Any, criterion: str, columns: list[int]) -> tuple[Any, Any] | None:
    """The criterion of a model of some columns over all folds, and how far it may be off."""
    total, off, count = 0, 0, 0
    for train, test in splits:
        weight = np.zeros(problem.n_rows)
        weight[train] = problem.sample_weight[train]
        if columns:
            part, rows = problem.derive(X=problem.X[:, columns], sample_weight=weight), problem.X[test][:, columns]
        else:  # a column of zeros stands for none
            part = problem.derive(X=np.zeros((problem.n_rows, 1)), penalty=glru.L2(1.0), sample_weight=weight)
            rows = np.zeros((len(test), 1))
        truth = retrain(part, DIGITS)
        if truth is None:
            return None
        value, doubt = _criterion(criterion, rows, problem.y[test])(truth)
        share = 1 if criterion == "error" else len(test)
        total, off, count = total + share * value, off + share * doubt, count + len(test)
    return (total, off) if criterion == "error" else (total / count, off / count)


def without_optimum(random: np.random.Generator) -> Iterator[Answer]:
    """Models that have no optimum, or scores without bounds: what is returned is right, or marked as open."""
    n, d = int(random.choice([8, 12])), int(random.choice([1, 2]))
    X, z = unscaled_rows(random, n, d)
    kind = str(random.choice(["separated", "one class", "free", "few"]))
    name = f"without an optimum, {kind}"
    if kind == "one class":
        # Rows of one class only are left under an unpenalised intercept.
        problem = glru.Problem(X, np.where(z > np.median(z), 1.0, -1.0), _smooth(random), glru.L2(0.1), True)
        out = glru.after(silently(glru.solve, problem), glru.RemoveRows(np.flatnonzero(problem.y < 0)))
        lower, upper = out.score_bounds(X)
        yield fact(f"{name}: labels", not out.score_bounds(X).signs.any())
        yield fact(f"{name}: bounds", bool(np.all(np.isinf(lower) & np.isinf(upper))))
        yield fact(f"{name}: reason", out.remark is not None)
        return
    if kind == "separated":
        y = np.where(X[:, 0] > np.median(X[:, 0]), "b", "a")
        if np.unique(y).size < 2:
            return
    else:
        y = np.where(z > np.median(z), "b", "a")
    C = np.inf if kind != "few" else 1e10
    model = Model(_unpenalised(C), glru.Logistic(), 0.0 if kind != "few" else 1.0 / C)
    splits = _splits(random, X, y, False)
    found = permitted(glru.cross_val_predict, model.estimator, X, y, cv=splits)
    if found is None:
        return
    columns = _held_out(model, X, y, splits, np.unique(y))
    if columns is not None:
        yield label_answer(f"{name}: labels", columns, np.unique(y), found)
    scores = permitted(glru.cross_val_predict, model.estimator, X, y, cv=splits, method="decision_function")
    accuracy = permitted(glru.cross_val_score, model.estimator, X, y, cv=splits)
    for fold, (train, test) in enumerate(splits):
        signs = np.where(y[train] == "b", 1.0, -1.0)
        if kind != "few" and _separable(X[train], signs):
            yield fact(f"{name}: labels are masked", bool(np.ma.getmaskarray(found)[test].all()))
            yield fact(f"{name}: scores are masked", bool(np.ma.getmaskarray(scores)[test].all()))
            yield fact(f"{name}: accuracies are NaN", bool(np.isnan(accuracy[fold])))


def _smooth(random: np.random.Generator) -> glru.losses.Loss:
    return (glru.Logistic(), glru.SquaredHinge(), glru.SmoothedHinge(0.25), glru.Hinge())[random.integers(4)]


def _unpenalised(C: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C)


def _separable(X: np.ndarray, signs: np.ndarray) -> bool:
    """Whether one column alone separates the classes strictly: then no optimum exists, whatever else there is."""
    return any(
        max(column[signs < 0]) < min(column[signs > 0]) or max(column[signs > 0]) < min(column[signs < 0])
        for column in X.T
    )


ANSWERS = (
    *(warm_starts, fold_labels, live_models, threads, problem_labels, searches),
    *(without_optimum, fold_labels, live_models, warm_starts, problem_labels, searches),
)
