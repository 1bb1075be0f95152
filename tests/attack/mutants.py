"""``python -m tests.attack.mutants``: break the proofs on purpose, one way at a time, and see that the tests notice.

Every mutant is the source with one slack, radius or inequality weakened. It is written to a copy of the source, and the tests
of the certificates run against that copy until one fails. A mutant that survives is a hole in the tests.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

CERTIFICATES = ("certificates/test_rounding.py", "certificates/test_answers.py", "certificates/test_carry.py")
FAMILIES = ("decisions/test_families.py", "decisions/test_loocv.py")
COLUMNS = ("decisions/test_column_families.py", "decisions/test_stepwise.py")
SLACK = ("certificates/test_slack.py",)
DEVICES = ("ecosystem/test_arrays.py",)
LATER = ("attack/test_attack.py", "verification/test_verify.py")

PARTITIONED = ("partitioned/test_loocv.py", "partitioned/test_training.py", "partitioned/test_changes.py")

MUTANTS = (
    (
        "rows in blocks: one metric for all factors, and nothing added for it",
        "partitioned/base.py",
        "max(high / middle, middle / low)",
        "1.0",
        PARTITIONED,
    ),
    (
        "rows in blocks: no slack for the sums",
        "partitioned/base.py",
        "spread = high * slope_spread(",
        "spread = 0.0 * slope_spread(",
        PARTITIONED,
    ),
    (
        "rows in blocks: the row's own factor forgotten",
        "partitioned/removing.py",
        "moves = moves + extra * images[:, 2]",
        "moves = 1.0 * moves",
        PARTITIONED,
    ),
    (
        "rows in blocks: the left-out row kept in the sums",
        "partitioned/removing.py",
        "slope_sums(rows, rows.weights, models, without)",
        "slope_sums(rows, rows.weights, models)",
        PARTITIONED,
    ),
    (
        "rows in blocks: scores that move not counted",
        "partitioned/removing.py",
        "moved = np.maximum(moved, np.abs(scores).max(axis=0))",
        "moved = 0.0 * moved",
        PARTITIONED,
    ),
    (
        "rows in blocks: the factor of the weights forgotten in steps",
        "partitioned/cascade.py",
        "factors[active] * sums.pulls",
        "sums.pulls",
        PARTITIONED,
    ),
    (
        "rows in blocks: a quarter of the gap",
        "partitioned/gap.py",
        "return self.nu * self.radius * (1.0 + FEW) + TINY**2",
        "return 0.25 * self.nu * self.radius",
        PARTITIONED,
    ),
    (
        "rows in blocks: rows that left still counted",
        "partitioned/rows.py",
        "weight[places] = 0.0",
        "weight[places] *= 1.0",
        PARTITIONED,
    ),
    (
        "rows in blocks: equality constraints not repaired",
        "partitioned/gap.py",
        "moves = (room_of(rows.loss, rows.y, -slopes) + again) * reach + again",
        "moves = None",
        PARTITIONED,
    ),
    (
        "no slack for the rounding of scores",
        "certificate.py",
        "wide *= 8.0 * UNIT\n    wide += errors",
        "wide *= 0.0",
        CERTIFICATES,
    ),
    (
        "no slack for the rounding of correlations",
        "certificate.py",
        "ends = [penalty.fenchel_young(coef, correlations + sign * wide) for sign in (-1.0, 1.0)]",
        "ends = [penalty.fenchel_young(coef, correlations)] * 2",
        CERTIFICATES,
    ),
    ("the sum of the gap rounded down", "certificate.py", "(1.0 + gamma(weights.size + 2))", "0.999", CERTIFICATES),
    (
        "infeasible dual points accepted",
        "certificate.py",
        "return room * size if",
        "return 0.0 * room if",
        CERTIFICATES,
    ),
    (
        "half the gap in the ball",
        "regions/ball.py",
        "ball_radius(certificate.gap)",
        "ball_radius(0.25 * certificate.gap)",
        CERTIFICATES,
    ),
    (
        "half the radius of the dual ball",
        "regions/box.py",
        "ball_radius(smoothness * self.certificate.gap)",
        "ball_radius(0.25 * smoothness * self.certificate.gap)",
        CERTIFICATES,
    ),
    (
        "the intercept forgotten in the ball",
        "regions/ball.py",
        "return np.nextafter(below + lower, -np.inf), np.nextafter(above + upper, np.inf)",
        "return below, above",
        CERTIFICATES,
    ),
    (
        "lower and upper end of the intercept swapped",
        "regions/ball.py",
        "return np.nextafter(below + lower, -np.inf), np.nextafter(above + upper, np.inf)",
        "return np.nextafter(below + upper, -np.inf), np.nextafter(above + lower, np.inf)",
        CERTIFICATES,
    ),
    (
        "wrong ends of the box",
        "regions/box.py",
        "least, most = up @ low - down @ high, up @ high - down @ low",
        "least, most = up @ low - down @ low, up @ high - down @ high",
        CERTIFICATES,
    ),
    (
        "the inverse of a device taken as exact",
        "regions/device_metric.py",
        "residual = _frobenius(xp, self.factor @ self.inverse - unit)",
        "residual = 0.0",
        DEVICES,
    ),
    (
        "the factor of a device taken as exact",
        "regions/device_metric.py",
        "off = (factored + ",
        "off = (0.0 * factored + ",
        DEVICES,
    ),
    (
        "an error of a gradient bounded by a curvature that is not there",
        "regions/metric.py",
        "return 0.0 if problem.fit_intercept else problem.penalty.strong_convexity",
        "return 1e6",
        (*FAMILIES, *LATER),
    ),
    (
        "half the width below the centre of every bound",
        "regions/base.py",
        "lower, upper = outward(center - half, -np.inf)",
        "lower, upper = outward(center - 0.1 * half, -np.inf)",
        CERTIFICATES,
    ),
    (
        "the old number of rows in carried weights",
        "candidates/carry.py",
        'factor = problem.total_weight / mass if problem.scaling == "mean" else 1.0',
        "factor = 1.0",
        CERTIFICATES,
    ),
    (
        "rows that come forgotten in the correlations",
        "candidates/carry.py",
        "- old.T @ pull_out + swap.X.T @ pull_in",
        "- old.T @ pull_out",
        CERTIFICATES,
    ),
    (
        "half the gradient in the local ellipsoid",
        "regions/local.py",
        "* loosening * (1.0 + FEW)",
        "* 0.5 * loosening",
        CERTIFICATES,
    ),
    (
        "the growth of the local radius dropped",
        "regions/local.py",
        "growth = -np.log1p(-product) / product if product > 1e-8 else 1.0 + product",
        "growth = 0.9",
        CERTIFICATES,
    ),
    (
        "the intercept forgotten in the metric",
        "regions/metric.py",
        "block = np.column_stack([block, np.ones(block.shape[0])])",
        "block = np.column_stack([block, np.zeros(block.shape[0])])",
        CERTIFICATES,
    ),
    (
        "the old number of rows in leave-one-out",
        "families/carried.py",
        "return np.where(factors <= 2.0, factors, np.inf)",
        "return np.ones(problem.n_rows)",
        FAMILIES,
    ),
    (
        "half the gap of a removed row's Newton candidate",
        "families/newton.py",
        "ball_radius(gaps) * self.reach[rows]",
        "ball_radius(0.01 * gaps) * self.reach[rows]",
        FAMILIES,
    ),
    (
        "the remainder of the Newton step dropped",
        "families/removals.py",
        "nu = remainder * (1.0 + LOST) * delta + residual",
        "nu = 0.0 * remainder * delta + residual",
        FAMILIES,
    ),
    (
        "the leverage of a removed row ignored",
        "families/removals.py",
        "/ (1.0 - leverage)\n",
        "\n",
        FAMILIES,
    ),
    (
        "columns without their gap",
        "families/columns/wide.py",
        "return widened(center, ball_radius(gaps) * reach * (1.0 + FEW) + off)",
        "return widened(center, 0.1 * ball_radius(gaps) * reach + off)",
        COLUMNS,
    ),
    (
        "half the radius of the local columns",
        "families/columns/local.py",
        "arrays.put(radius * (1.0 + FEW)) + off",
        "arrays.put(radius * 0.01) + off",
        COLUMNS,
    ),
    (
        "open candidates taken as decided",
        "selection/contest.py",
        "(behind >= self.upper - self.resolution)",
        "(behind >= self.lower - self.resolution)",
        COLUMNS,
    ),
    (
        "no slack for the rounding of leave-one-out's dual bound",
        "families/carried.py",
        "return widened(middle, reach * (1.0 + unit + sum_error(self.depth)) + rounding)",
        "return widened(middle, reach)",
        SLACK,
    ),
    (
        "no slack for the rounding of the box's correlations",
        "regions/box.py",
        "half = spread(self.radius, certificate.column_norms) + certificate.correlation_errors",
        "half = spread(self.radius, certificate.column_norms)",
        SLACK,
    ),
    (
        "the box and the intercept added without rounding outward",
        "regions/box.py",
        "return np.nextafter(lower + below, -np.inf), np.nextafter(upper + above, np.inf)",
        "return lower + below + 1e-15 * abs(below), upper + above - 1e-15 * abs(above)",
        SLACK,
    ),
    (
        "no slack for sums over folds",
        "selection/panel.py",
        "self._off = 0.0 if criterion.counts else gamma(len(judges) + 2)",
        "self._off = 0.0",
        SLACK,
    ),
    (
        "no slack for sums over rows",
        "selection/criteria.py",
        "off = 0.0 if self.counts else gamma(least.shape[0] + 2)",
        "off = 0.0",
        SLACK,
    ),
    (
        "no slack for the rounding of a local row's step",
        "families/removals.py",
        "parts = step_norm**2 + own**2",
        "shift_error *= 0.0\n        parts = step_norm**2 + own**2",
        SLACK,
    ),
    (
        "no slack for the rounding of a local row's gradient",
        "families/removals.py",
        "residual = self.slack_norm + left_over * norms + self.eta * delta",
        "residual = 0.0 * left_over",
        SLACK,
    ),
    (
        "underflow forgotten in the norm of a gradient",
        "regions/metric.py",
        "self._least_of(outer, slack)) * (1.0 + self.solve_error) + TINY",
        "self._least_of(outer, slack)) * (1.0 + self.solve_error)",
        LATER,
    ),
    (
        "a column that comes judged by squares alone",
        "selection/validation.py",
        "return has_wide_columns(self.model.problem) and penalty.smooth and penalty.strong_convexity > 0.0",
        "return has_wide_columns(self.model.problem) and penalty.strong_convexity > 0.0",
        COLUMNS,
    ),
)


def main() -> int:
    """Run every mutant; the number of survivors."""
    survivors = []
    chosen = sys.argv[1:]
    for number, (name, file, old, new, tests) in enumerate(MUTANTS):
        if chosen and str(number) not in chosen:
            continue
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder)
            for part in ("src", "tests"):
                shutil.copytree(ROOT / part, copy / part, ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "pyproject.toml", copy)
            path = copy / "src" / "glru" / file
            source = path.read_text(encoding="utf-8")
            if old not in source:
                raise SystemExit(f"mutant {number} ({name}): {file} has no {old!r} any more. Rewrite the mutant.")
            path.write_text(source.replace(old, new, 1), encoding="utf-8")
            killed = _tests_fail(copy, (*tests, *LATER))
        print(f"{number:>3}  {'killed by ' + killed if killed else 'SURVIVED'}: {name}", flush=True)
        if not killed:
            survivors.append(name)
    print(f"{len(survivors)} survivors" + "".join(f"\n  {name}" for name in survivors))
    return len(survivors)


def _tests_fail(copy: Path, tests: tuple[str, ...]) -> str:
    """The first test that fails; empty where all pass."""
    environment = dict(os.environ, PYTHONPATH="src", OMP_NUM_THREADS="1")
    for test in tests:
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "--no-header", f"tests/{test}"]
        run = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
        if run.returncode:
            failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return failed[0].split(" ")[1] if failed else test
    return ""


if __name__ == "__main__":
    sys.exit(main())
