"""Every data set at hand and hostile generated ones: each question against one fit, and against scikit-learn.

``python -m benchmarks zoo [--quick] [--short] [--only TEXT] [--what fit,loo] [--limit SECONDS] [--jobs N] [--out FILE] [--labels]``

A line is a data set (each file in ``GLRU_DATA`` and each shape below; columns as they are, and scaled) with a strength ``lam`` under the mean of the losses,
with or without an intercept; logistic loss, or squared loss where the targets are numbers. All times are processor time of one thread, the shortest
of a few runs from fresh objects, in a process of its own that is ended when a question takes much longer than the limit. What is compared:

fit        ``glru.solve(Problem(X, y), tol=1e-6)`` / the fastest of scikit-learn's solvers, each at the loosest ``tol`` (in decades) at which its objective is
           within 1e-6 of the optimum (relative, against a dual value that glru certified to 1e-9). Ours must *prove* that gap, theirs must only have it.
loo        ``loocv(solution, width="labels")`` / fit; ``loo_train`` and ``loo_open``: rows that were trained, and rows whose label is open.
scores     ``loocv(solution, width=1e-6 * spread of the scores)`` / fit; ``scores_train``, ``scores_open`` alike.
eliminate  the first step of ``stepwise`` on 90 % of the rows, judged by the log-loss (squared error) on the others / the fit of those 90 %.
fold5, fold10   scikit-learn's ``cross_val_predict`` with the solver and ``tol`` of "fit" / glru's, both given the same estimator: above 1 is faster.
grid       ``LogisticRegressionCV(Cs=10, cv=5)`` (lbfgs, ``tol=1e-4``) / ``GLRUClassifierCV`` on the same grid and folds; at 2^-5.
row1, row10, col1   share of labels (squared loss: scores to 1e-6 of their spread) that ``after`` proves for removing 1 row, 10 rows, 1 column, of at most 200
           rows under five random changes; ``after_fit``: the median time of such a call / fit.

A run that was cut off at the limit shows as ">" or "<" before the ratio; "?" is no answer at all. A line that misses a target ends with the names of the targets it misses.
"""

import argparse
import csv
import json
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV, Ridge
from sklearn.model_selection import cross_val_predict

import glru
from benchmarks.data import SHAPES, folder, load_or_generate
from benchmarks.timing import print_table
from glru.duality import primal_value

GAP = 1e-6
EXPONENTS = (0, -5, -10, -15)
QUESTIONS = ("fit", "loo", "scores", "eliminate", "folds", "grid", "after")
COLUMNS = {
    "fit": ("ms", "fit", "rival", "tol"),
    "loo": ("loo", "loo_ms", "loo_train", "loo_open"),
    "scores": ("scores", "scores_ms", "scores_train", "scores_open"),
    "eliminate": ("eliminate",),
    "folds": ("fold5", "fold10"),
    "grid": ("grid",),
    "after": ("row1", "row10", "col1", "after_fit"),
    "labels": ("checked", "wrong"),
}
KEY = ("data", "rows", "columns", "loss", "lam", "intercept")
TARGETS = {  # the median wanted over all lines, and the worst; ratios to scikit-learn are speeds, and must be above
    "fit": (1.0, 1.0),
    "loo": (0.5, 1.5),
    "scores": (2.0, 2.0),
    "eliminate": (5.0, 8.0),
    "fold5": (3.0, 1.5),
    "fold10": (5.0, 1.5),
    "grid": (10.0, 10.0),
    "loo_train": (0, 0),
    "scores_train": (0, 0),
    "row1": (1.0, 1.0),
    "row10": (1.0, 1.0),
    "col1": (1.0, 1.0),
    "wrong": (0, 0),
}
SPEEDS = {"fold5", "fold10", "grid", "row1", "row10", "col1"}
ENOUGH_MS = 3.0
"""Leave-one-out that takes no longer than this meets its target whatever the fit takes."""

QUICK = ("heart", "wdbc", "sonar", "splice", "dlbcl_shipp", "dexter", "pcmac", "reg_housing_scale", "reg_airfoil")


class Line:
    """One line: a data set, a strength, with or without an intercept; and the answers to its questions."""

    def __init__(self, name: str, scaled: bool, exponent: int, intercept: bool, limit: float) -> None:
        self.X, self.y = load_or_generate(name, scaled)
        self.numbers = np.unique(self.y).size > 2
        self.lam, self.intercept, self.limit = 2.0**exponent, intercept, limit
        self.loss = glru.Squared() if self.numbers else glru.Logistic()
        self.options = {"loss": self.loss, "penalty": glru.L2(self.lam), "fit_intercept": intercept}
        self.known: dict = {}
        self.random = np.random.default_rng(0)

    def problem(self, X=None, y=None):
        return glru.Problem(self.X if X is None else X, self.y if y is None else y, **self.options)

    def solved(self):
        return glru.solve(self.problem(), tol=GAP)

    def models(self):
        """scikit-learn's solvers of this objective: a name and an estimator, which takes ``tol``. Solvers that step through rows are left out."""
        n, d = self.X.shape
        if self.numbers:
            names = ["cholesky", "lsqr", "sparse_cg"] + ["svd"] * (not sp.issparse(self.X) and min(n, d) <= 2000)
            names = names if min(n, d) <= 5000 else names[1:3]
            return {s: Ridge(n * self.lam, solver=s, fit_intercept=self.intercept, max_iter=20_000) for s in names}
        base = {"C": 1.0 / (n * self.lam), "fit_intercept": self.intercept}
        found = {"newton-cholesky": LogisticRegression(solver="newton-cholesky", max_iter=100, **base)}
        found = found if d <= 2000 else {}
        found["lbfgs"] = LogisticRegression(solver="lbfgs", max_iter=3000, **base)
        found["newton-cg"] = LogisticRegression(solver="newton-cg", max_iter=200, **base)
        if not self.intercept:  # LIBLINEAR penalises the intercept: another objective
            found["liblinear"] = LogisticRegression(solver="liblinear", max_iter=1000, **base)
            found["liblinear dual"] = LogisticRegression(solver="liblinear", dual=True, max_iter=3000, **base)
        return found

    def rival(self, lower: float):
        """The fastest solver that comes within the gap of the optimum, with that ``tol``: its name and the estimator."""
        problem, until = self.problem(), time.monotonic() + self.limit
        name, best, least = "", None, np.inf
        for other, model in self.models().items():
            for decade in range(1, 13):
                model.set_params(tol=10.0**-decade)
                (spent,) = turns(lambda: model.fit(self.X, self.y), limit=self.limit, enough=0.0)
                if spent > 1.5 * least or spent >= self.limit or time.monotonic() > until:
                    break  # a smaller tol takes longer still
                coef, intercept = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0]) if self.intercept else 0.0
                value = primal_value(problem, coef, problem.scores(coef, intercept))
                if value - lower <= GAP * value:
                    (spent,) = turns(lambda: model.fit(self.X, self.y), limit=self.limit, enough=0.3)
                    name, best, least = (other, model, spent) if spent < least else (name, best, least)
                    break
        return name, best

    def fit(self) -> dict:
        tight = glru.solve(self.problem(), tol=1e-9)
        name, model = self.rival(tight.primal_value - tight.gap)
        if model is None:  # no solver reached the gap within the limit
            (ours,) = turns(self.solved, limit=self.limit)
            return {"ms": f"{1e3 * ours:.3g}"}
        ours, theirs = turns(self.solved, lambda: model.fit(self.X, self.y), limit=self.limit)
        return {"ms": f"{1e3 * ours:.3g}", "fit": f"{ours / theirs:.3g}", "rival": name, "tol": f"{model.tol:.0e}"}

    def leave_one_out(self, name: str, labels: bool) -> dict:
        found = {}

        def first():
            found["fit"] = self.solved()
            found["width"] = "labels" if labels else 1e-6 * (float(np.ptp(found["fit"].scores)) or 1.0)

        def second():
            begin = time.monotonic()
            found["loo"] = glru.loocv(found["fit"], width=found["width"], max_seconds=self.limit)
            found["cut"] = time.monotonic() - begin > self.limit

        fit, ours = turns(first, second, limit=2.0 * self.limit)  # the library's own limit leaves something to count
        if "loo" not in found:
            return {name: show(ours / fit, ">")}
        bounds = found["loo"].bounds
        decided = bounds.decided if labels else bounds.upper - bounds.lower <= found["width"]
        n_open = int(np.count_nonzero(~decided))
        ratio = show(ours / fit, ">" if found["cut"] and n_open else "")
        counts = {f"{name}_train": found["loo"].n_trainings, f"{name}_open": n_open}
        return {name: ratio, f"{name}_ms": f"{1e3 * ours:.3g}"} | counts

    def loo(self) -> dict:
        return {} if self.numbers else self.leave_one_out("loo", labels=True)

    def scores(self) -> dict:
        return self.leave_one_out("scores", labels=False)

    def eliminate(self) -> dict:
        order = np.random.default_rng(0).permutation(self.y.size)
        cut = max(self.y.size // 10, 2)
        val, train = np.sort(order[:cut]), np.sort(order[cut:])
        criterion, found = "squared_error" if self.numbers else "log_loss", {}
        rows = {"X_val": self.X[val], "y_val": self.y[val]}
        X, y = self.X[train], self.y[train]

        def first():
            found["fit"] = glru.solve(self.problem(X, y), tol=GAP)

        def second():
            options = {"criterion": criterion, "max_steps": 1, "max_seconds": self.limit}
            found["step"] = glru.stepwise(found["fit"], **rows, **options)

        fit, ours = turns(first, second, limit=2.0 * self.limit)
        return {"eliminate": show(ours / fit, ">" if "step" not in found or found["step"].interrupted else "")}

    def folds(self) -> dict:
        models = self.models()
        rival = self.known.get("rival") or ("lbfgs" if "lbfgs" in models else next(iter(models)))
        model = models[rival].set_params(tol=float(self.known.get("tol") or 1e-6))
        found = {}
        for count in (5, 10):
            if self.numbers or min(np.sum(self.y > 0), np.sum(self.y < 0)) >= count:
                found[f"fold{count}"] = self.speed(
                    lambda: cross_val_predict(model, self.X, self.y, cv=count),
                    lambda: glru.cross_val_predict(model, self.X, self.y, cv=count),
                )
        return found

    def grid(self) -> dict:
        if self.numbers or not self.intercept or self.lam != 2.0**-5:
            return {}
        theirs = LogisticRegressionCV(Cs=10, cv=5, max_iter=3000, use_legacy_attributes=False, l1_ratios=(0.0,))

        ours = glru.GLRUClassifierCV(Cs=np.logspace(-4, 4, 10), cv=5)
        return {"grid": self.speed(lambda: theirs.fit(self.X, self.y), lambda: ours.fit(self.X, self.y))}

    def speed(self, theirs, ours) -> str:
        """Their time in units of ours."""
        their_time, our_time = turns(theirs, ours, limit=self.limit)
        cut = "<" if our_time >= self.limit else ">" if their_time >= self.limit else ""
        return "?" if min(their_time, our_time) >= self.limit else show(their_time / our_time, cut)

    def after(self) -> dict:
        solution = self.solved()
        (fit,) = turns(self.solved, limit=self.limit)
        n, d = self.X.shape
        queries = self.X[np.sort(self.random.choice(n, min(n, 200), replace=False))]
        width, found, spent = 1e-6 * float(np.ptp(solution.scores)), {}, []
        for name, size, change in (
            ("row1", 1, glru.RemoveRows),
            ("row10", 10, glru.RemoveRows),
            ("col1", 1, glru.RemoveColumns),
        ):
            shares = []
            for _ in range(5):
                which = self.random.choice(d if name == "col1" else n, size, replace=False)
                Q = queries[:, np.delete(np.arange(d), which)] if name == "col1" else queries
                proven = []

                def ask(which=which, change=change, Q=Q, proven=proven):
                    bounds = glru.after(solution, change(which.tolist())).score_bounds(Q)
                    proven.append(np.mean(bounds.upper - bounds.lower <= width if self.numbers else bounds.decided))

                spent += turns(ask, limit=self.limit, repeats=1)
                shares.append(proven[0] if proven else 0.0)
                if not proven:
                    break
            found[name] = show(float(np.mean(shares)))
        return found | {"after_fit": f"{np.median(spent) / fit:.3g}"}

    def labels(self) -> dict:
        """Compare the bounds of some rows' scores with those of models that were trained without the row."""
        result = glru.loocv(self.solved(), width=None, max_seconds=self.limit)
        wrong, rows = 0, self.random.choice(self.y.size, min(self.y.size, 20), replace=False)
        hard = np.argsort(np.abs(result.bounds.lower + result.bounds.upper))[:10]  # labels that are close
        for row in np.union1d(rows, hard):
            weight = np.where(np.arange(self.y.size) == row, 0.0, 1.0)
            problem = glru.Problem(self.X, self.y, sample_weight=weight, **self.options)
            solution = glru.solve(problem, tol=1e-15)  # scores err by the root of the gap
            score, slack = solution.scores[row], 1e-6 * np.abs(solution.scores).max()
            wrong += not result.bounds.lower[row] - slack <= score <= result.bounds.upper[row] + slack
            if not self.numbers and result.bounds.decided[row] and abs(score) > slack:
                wrong += int(np.sign(score) != result.bounds.signs[row])
        return {"checked": np.union1d(rows, hard).size, "wrong": wrong}


def turns(*steps, limit: float, repeats: int = 7, enough: float = 1.5) -> list[float]:
    """Processor seconds of each step, run in turns: the shortest of some turns; the limit for a step that was cut off there."""
    best, begin = [np.inf] * len(steps), time.monotonic()
    for _ in range(repeats):
        for k, step in enumerate(steps):
            first = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, limit)  # a timer of processor time would make its clock coarse
            try:
                step()
                spent = time.process_time() - first
            except TimeoutError:
                spent = limit
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            best[k] = min(best[k], spent)
        if time.monotonic() - begin > enough:
            break
    return best


def stop(*_) -> None:
    raise TimeoutError


def show(value: float, sign: str = "") -> str:
    """A ratio of three digits; the sign says on which side of it the true one lies, where a run was cut off."""
    return f"{sign}{value:.3g}"


def work() -> None:
    """Answer questions that come line by line, in a process of its own."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    asked, line = None, None
    for text in sys.stdin:
        key, limit, what, known = json.loads(text)
        if key != asked:
            asked, line = key, Line(*key, limit)
        if what == "size":
            found = dict(zip(("rows", "columns"), line.X.shape, strict=True)) | {"loss": type(line.loss).__name__}
        else:
            line.known = known
            found = getattr(line, what)()
        print(json.dumps({name: str(value) for name, value in found.items()}), flush=True)


class Worker:
    """The process that answers; it is started again when a question takes too long or ends it."""

    def __init__(self, limit: float) -> None:
        self.limit, self.process = limit, None

    def ask(self, key, what: str, known: dict) -> dict | None:
        if self.process is None:
            command = [sys.executable, "-c", "from benchmarks.zoo import work; work()"]
            threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
            self.process = subprocess.Popen(
                command,
                env=os.environ | threads,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # an interruption is for the process that asks
            )
        self.process.stdin.write(json.dumps([key, self.limit, what, known]) + "\n")
        self.process.stdin.flush()
        ready, _, _ = select.select([self.process.stdout], [], [], 20.0 * self.limit + 60.0)
        answer = self.process.stdout.readline() if ready else ""
        if answer:
            return json.loads(answer)
        self.end()
        return None

    def end(self) -> None:
        """End the process, if there is one."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def missed(row: dict) -> list[str]:
    """The targets that a line misses."""
    found = []
    for name, (_, worst) in TARGETS.items():
        text = row.get(name) or ""
        if name == "loo" and int(row["columns"]) > int(row["rows"]):
            worst = 1.0
        if name == "scores" and row["loss"] == "Squared":
            worst = 0.5
        value = number(text)
        quick = number(row.get(f"{name}_ms") or "") <= ENOUGH_MS
        cut = text[:1] in ("?", "<" if name in SPEEDS else ">")
        if text and not quick and (cut or (value < worst if name in SPEEDS else value > worst)):
            found.append(name)
    return found


def number(text: str) -> float:
    """What a cell says, for medians: a cut-off value counts as what it reached."""
    return float(text.strip("<>")) if text not in ("", "?") else np.nan


def lines(arguments):
    """The keys of all lines: name, scaled, exponent, intercept."""
    there = sorted(path.stem for path in folder().glob("*.npz")) if folder() is not None else []
    names = [*SHAPES, *(name for name in there if name in QUICK or not arguments.quick)]
    few = arguments.quick or arguments.short
    for name in names:
        for scaled in (False,) if arguments.quick and name in SHAPES else (False, True):
            if not arguments.only or arguments.only in title(name, scaled):
                for exponent in (-5, -10) if few else EXPONENTS:
                    for intercept in (True,) if few else (True, False):
                        yield name, scaled, exponent, intercept


def title(name: str, scaled: bool) -> str:
    """What a line shows as its data."""
    return f"{name}, scaled" if scaled else name


def run(options: Sequence[str] = ("--quick",)) -> None:
    """Ask every line every question, print the lines, and say which targets are met."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks zoo")
    parser.add_argument("--quick", action="store_true", help="--short, and a few data sets only; minutes")
    parser.add_argument("--short", action="store_true", help="two strengths, only with an intercept")
    parser.add_argument("--only", help="data sets whose name has this in it")
    parser.add_argument("--what", default=",".join(QUESTIONS), help=f"of {', '.join(QUESTIONS)}")
    parser.add_argument("--limit", type=float, help="seconds per question; 60, or 10 with --quick")
    parser.add_argument("--jobs", type=int, default=1, help="lines at a time; leave a core free")
    parser.add_argument("--out", type=Path, help="a CSV file; lines that it holds already are not asked again")
    parser.add_argument("--labels", action="store_true", help="also compare some rows with models trained without them")
    arguments = parser.parse_args(options)
    what = arguments.what.split(",") + ["labels"] * arguments.labels
    header = [*KEY, *(column for columns in COLUMNS.values() for column in columns), "missed"]
    kept, free, lock, stopped = {}, queue.SimpleQueue(), threading.Lock(), threading.Event()
    if arguments.out and arguments.out.exists():
        with arguments.out.open(newline="") as file:
            kept = {tuple(row[k] for k in ("data", "lam", "intercept")): row for row in csv.DictReader(file)}
    workers = [Worker(arguments.limit or (10.0 if arguments.quick else 60.0)) for _ in range(arguments.jobs)]
    for worker in workers:
        free.put(worker)

    def answer(key) -> dict:
        shown, lam, intercept = title(key[0], key[1]), f"2^{key[2]}", str(key[3])
        row = kept.get((shown, lam, intercept), {"data": shown, "lam": lam, "intercept": intercept})
        worker = free.get()
        for question in what:
            if not stopped.is_set() and not any(row.get(column) for column in COLUMNS[question]):
                row |= worker.ask(key, "size", {}) or {} if not row.get("rows") else {}
                found = worker.ask(key, question, row)
                row |= {COLUMNS[question][0]: "?"} if found is None else found
        free.put(worker)
        with lock:
            if stopped.is_set():
                return row
            row["missed"] = " ".join(missed(row))
            kept[shown, lam, intercept] = row
            print("  ".join(str(row.get(column, "")) for column in header), flush=True)
            if arguments.out:
                with arguments.out.open("w", newline="") as file:
                    writer = csv.DictWriter(file, header, extrasaction="ignore")
                    writer.writeheader()
                    writer.writerows(kept.values())
        return row

    print("  ".join(header))
    pool = ThreadPoolExecutor(arguments.jobs)
    try:
        summarise(list(pool.map(answer, lines(arguments))))
    finally:
        stopped.set()
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.end()


def summarise(rows: list[dict]) -> None:
    """Print, for each target, the median and the worst line, and how many lines miss it."""
    table = []
    for name, (median, worst) in TARGETS.items():
        known = [row for row in rows if np.isfinite(number(row.get(name) or ""))]
        if known:
            values = np.array([number(row[name]) for row in known])
            place = int(np.argmin(values) if name in SPEEDS else np.argmax(values))
            where = f"{known[place]['data']}, {known[place]['lam']}"
            count, asked = sum(name in missed(row) for row in rows), sum(bool(row.get(name)) for row in rows)
            sign = ">=" if name in SPEEDS else "<="
            wanted = f"{sign} {median}, {worst}"
            table.append([name, wanted, f"{np.median(values):.3g}", f"{values[place]:.3g}", where, count, asked])
    print_table("Targets", ["what", "median, each", "median", "worst", "where", "missed", "of"], table)
