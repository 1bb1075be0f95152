"""From options to a training problem."""

import csv
import glob
import re
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

import glru
from glru import datasets
from glru._options import Budget
from glru.cli.options import DataOptions, LossOptions, StrengthOptions
from glru.datasets import Contents, Prepared
from glru.datasets.check import Check, describe_features
from glru.datasets.files import STANDARD_INPUT, expand
from glru.datasets.preparation import TargetEncoding, find_target, has_gaps
from glru.linalg import Array, RawMatrix
from glru.losses import LOSSES
from glru.sklearn import adapt
from glru.sklearn.adapt import Adapted

LAM = 0.01
MAX_REFILL_WORK = 1e9
"""Rows times rows times columns up to which missing values are filled again without each row, which takes about ten seconds."""

PARAMETERS = (
    "target|positive|drop|ids|one_hot|impute|normalize|task|delimiter|header|zero_based|encoding|decimal|missing|keep"
)
PARAMETER = re.compile(rf"\b({PARAMETERS})=(True|False|\[\.\.\.\]|\.\.\.|'[^']*')")
"""A library parameter with its value, as error messages write it."""

FLAGS = {"ids": "id"}
"""Flags whose name differs from that of the parameter."""


@dataclass(frozen=True)
class Job:
    """A prepared problem and what is reported about it; ``adapted``: the same as a pipeline whose steps are refitted without each row."""

    prepared: Prepared
    problem: glru.Problem
    facts: dict[str, Any]
    seconds: float
    check: Check
    adapted: Adapted | None = None
    filled_once: bool = False

    @property
    def is_large(self) -> bool:
        """Whether work that grows with the square of the number of rows would take long."""
        n_rows, n_columns = self.prepared.X.shape
        work, problem = float(n_rows) ** 2 * n_columns, self.problem
        if problem.loss.several:
            # All rows' scores under all models are computed, a score per class.
            work *= 4.0 * len(self.prepared.targets.classes or ())
        elif problem.loss.self_concordance is not None and problem.penalty.smooth:
            # Expansions bound all rows without a product of every row with every model.
            work *= 1e-3
        return work > MAX_REFILL_WORK

    def row_name(self, row: int) -> str:
        """A row's id where the data has one, else its position."""
        return self.prepared.ids[row] if self.prepared.ids else str(row)


def make_job(data: DataOptions, loss: LossOptions, strength: StrengthOptions, fill: bool = False) -> Job:
    """Read, check and prepare the data, and make the problem; ``fill``: as in :func:`prepare_data`."""
    begin = time.perf_counter()
    penalty, scaling = _make_penalty(strength)
    chosen = LOSSES[loss.loss]() if loss.loss else None
    prepared, check = prepare_data(data, chosen.task if chosen else None, fill)
    classes = prepared.targets.classes
    if chosen is None:
        chosen = glru.Squared() if classes is None else glru.Logistic() if len(classes) == 2 else glru.Multinomial()
    _check_loss(chosen, loss.loss, prepared.targets)
    problem = glru.Problem(prepared.X, prepared.y, chosen, penalty, fit_intercept=loss.intercept, scaling=scaling)
    facts = {"data": describe_data(prepared, check), "model": _describe_model(problem, strength, loss.tol)}
    return Job(prepared, problem, facts, time.perf_counter() - begin, check)


def _check_loss(loss: glru.losses.Loss, name: str | None, targets: TargetEncoding) -> None:
    """Refuse a two-class loss for more classes, and a multinomial loss for two."""
    if targets.classes is None or loss.several == (len(targets.classes) > 2):
        return
    found = f"the target {targets.column or 'y'!r} has {len(targets.classes)}"
    if loss.several:
        raise ValueError(f"--loss {name} is for three classes or more; {found}. Use --loss logistic.")
    raise ValueError(
        f"--loss {name} is for two classes; {found}. Leave --loss out (or give multinomial), or single one class out with --positive."
    )


def require_pairs(job: Job) -> None:
    """Refuse a class with a single row in leave-one-out with an intercept."""
    classes, y = job.prepared.targets.classes, job.problem.y
    if classes is None or not job.problem.fit_intercept:
        return
    places = (y if len(classes) > 2 else y > 0.0).astype(np.intp)
    alone = np.flatnonzero(np.bincount(places, minlength=len(classes)) == 1)
    if alone.size:
        row = int(np.flatnonzero(places == alone[0])[0])
        raise ValueError(
            f"the class {classes[alone[0]]!r} of the target {job.prepared.targets.column or 'y'!r} in {job.prepared.source} has a single row, "
            f"{job.row_name(row)}: without it the intercept has no optimum, so that it cannot be left out. Take the row out of the file, join the class "
            "with another one, or leave the intercept out (--no-intercept)."
        )


def refit_steps(job: Job, strength: StrengthOptions) -> Job:
    """The job with preparation and model as one pipeline, so that each row is left out of both.

    Missing values of large data are filled in once: new fills for every row take time that grows with the square of the number of rows.
    """
    from sklearn.pipeline import make_pipeline

    problem, prepared = job.problem, job.prepared
    steps = [step for _, step in prepared.transformer.steps if not isinstance(step, str)]
    if not steps:
        return job
    kind: Any = glru.GLRUClassifier if problem.loss.task == "classification" else glru.GLRURegressor
    options = {"C": strength.C} if strength.C is not None else {"lam": float(problem.penalty.quadratic)}
    model = kind(problem.loss, kappa=strength.kappa, fit_intercept=problem.fit_intercept, **options)
    if job.is_large and problem.loss.several:
        return job
    once = job.is_large and prepared.has_gaps
    adapted = adapt(make_pipeline(*steps, model), prepared.fill_gaps() if once else prepared.raw, problem.y)
    return replace(job, problem=adapted.problems[0], adapted=adapted, filled_once=once)


def _make_penalty(strength: StrengthOptions) -> tuple[glru.penalties.Penalty, Any]:
    if strength.lam is not None and strength.C is not None:
        raise typer.BadParameter("--lam and --C are alternatives; give only one of them.")
    if strength.C is not None and not strength.C > 0.0:
        raise typer.BadParameter(f"--C must be above 0; got {strength.C}.")
    lam = 1.0 / strength.C if strength.C is not None else LAM if strength.lam is None else strength.lam
    scaling = "mean" if strength.C is None else "sum"
    return (glru.ElasticNet(lam, strength.kappa) if strength.kappa else glru.L2(lam)), scaling


def prepare_data(data: DataOptions, task: Any, fill: bool = False, as_is: bool = False) -> tuple[Prepared, Check]:
    """Read the data, check it, and bring it into the form of the training problem.

    ``fill``: learn fills also for columns without missing values, which other files may have; ``as_is``: leave out no column and fill in nothing by default.
    """
    path = find_file(data)
    with name_flags_in_errors():
        source = datasets.load(data.data) if path is None else read(path, data)
        table = source.table if isinstance(source, Contents) else None
        if not isinstance(source, Contents) or table is None or as_is:
            prepared = _prepare(source, data, task)
            return prepared, Check({}, None, [])
        drop = split_list(data.drop)
        target = find_target(source, data.target)
        check = datasets.check_table(source, target, split_list(data.keep), [*drop, *([data.id] if data.id else [])])
        left_out = {name: reason for name, reason in check.left_out.items() if name not in drop}
        unused = {*drop, *left_out, target, data.id or check.id_column} & set(source.names)
        if data.impute is None and (fill or has_gaps(table.drop(unused))):
            data = replace(data, impute="mean")
        data = replace(data, id=data.id or check.id_column, target=target)
        prepared = _prepare(source, data, task, [*drop, *left_out])
    read_as = [(heading, PARAMETER.sub(_to_flag, text)) for heading, text in check.notes]
    notes = read_as + describe_features(prepared.raw, prepared.y, prepared.targets.classes)
    return prepared, Check(left_out, check.id_column, notes)


def _prepare(source: Any, data: DataOptions, task: Any, drop: Sequence[str] | None = None) -> Prepared:
    is_table = isinstance(source, Contents) and source.table is not None
    return datasets.prepare(
        source,
        target=data.target,
        positive=data.positive,
        drop=split_list(data.drop) if drop is None else drop,
        ids=data.id,
        one_hot=data.one_hot and is_table,
        impute=data.impute,
        normalize=data.normalize,
        task=task,
    )


def seconds_left(budget: Budget) -> float | None:
    """The seconds left for a step that returns partial results when its time is up."""
    return None if budget.end is None else max(budget.end - time.monotonic(), 1e-6)


def find_file(data: DataOptions) -> Path | None:
    """The path if the argument names a file or looks like a path; None for a dataset."""
    path = Path(data.data)
    known = path == STANDARD_INPUT or path.is_file() or path.is_dir() or glob.has_magic(data.data)
    return path if known or path.suffix or len(path.parts) > 1 else None


def find_files(*paths: Path | None) -> list[Path]:
    """The files that paths stand for."""
    return [file for path in paths if path is not None and path != STANDARD_INPUT for file in expand(path)]


def read(path: Path, data: DataOptions, n_columns: int | None = None) -> Contents:
    """Read a file with the options of the command."""
    # A shell passes a tab on as the two characters that it is written with.
    delimiter = "\t" if data.delimiter == r"\t" else data.delimiter
    return datasets.read(
        path,
        format=data.format,
        delimiter=delimiter,
        header=data.header,
        zero_based=data.zero_based,
        n_columns=n_columns,
        encoding=data.encoding,
        decimal=data.decimal,
        missing=split_list(data.missing),
    )


def read_new_rows(path: Path, data: DataOptions, job: Job) -> tuple[RawMatrix, list[str], dict[str, list[str]]]:
    """Read the rows of another file in the columns of the training problem, with their names and unknown categories."""
    prepared = job.prepared
    with name_flags_in_errors():
        contents = _read_other_file(path, data, job)
        X = prepared.transform(contents)
        _add_note(job, contents)
    names = list(map(str, range(contents.n_rows)))
    if contents.table is not None and prepared.id_column in contents.names:
        names = [str(name) for name in contents.table[prepared.id_column].to_list()]
    return X, names, prepared.find_unknown_values(contents)


def read_labelled_rows(path: Path, data: DataOptions, job: Job) -> tuple[RawMatrix, Array]:
    """Read the rows and targets of another file in the form of the training problem."""
    with name_flags_in_errors():
        contents = _read_other_file(path, data, job)
        labelled = job.prepared.transform_labelled(contents)
        _add_note(job, contents)
    return labelled


def _read_other_file(path: Path, data: DataOptions, job: Job) -> Contents:
    """Read another file, with the decimal mark of the training data."""
    prepared = job.prepared
    data = replace(data, decimal="," if data.decimal is None and prepared.has_comma else data.decimal)
    return read(path, data, None if prepared.is_table else int(prepared.columns[-1]) + 1)


def _add_note(job: Job, contents: Contents) -> None:
    """Add a note on how values of another file were interpreted."""
    notes = job.prepared.describe_reading(contents)
    if notes:
        heading, text = f"read in {contents.path.name} as", PARAMETER.sub(_to_flag, "; ".join(notes))
        job.check.notes.append((heading, text))
        job.facts["data"]["notes"][heading] = text


@contextmanager
def name_flags_in_errors() -> Iterator[None]:
    """Replace the library's parameters in error messages by command-line options."""
    try:
        yield
    except ValueError as error:
        raise ValueError(PARAMETER.sub(_to_flag, str(error))) from None


def _to_flag(match: re.Match[str]) -> str:
    name, value = match.groups()
    if (name, value) == ("task", "'regression'"):
        return "--loss squared"
    flag = f"--{FLAGS.get(name, name).replace('_', '-')}"
    if value == "False":
        return flag.replace("--", "--no-", 1)
    return f"{flag} {shlex.quote(value[1:-1])}" if value.startswith("'") else flag


def split_list(text: str) -> list[str]:
    """Split a text at its commas, except inside double quotes."""
    parts = next(csv.reader([text], skipinitialspace=True), [])
    return [part.strip() for part in parts if part.strip()]


def describe_classes(classes: Sequence[str] | None) -> Any:
    """What -1 and +1 stand for, or the names of more classes, for the JSON output."""
    return {"-1": classes[0], "+1": classes[1]} if classes and len(classes) == 2 else classes


def describe_data(prepared: Prepared, check: Check) -> dict[str, Any]:
    """Facts about the data for the JSON output."""
    return {
        "name": "-" if prepared.source == "-" else prepared.name,
        "source": prepared.source,
        "rows": int(prepared.X.shape[0]),
        "columns": int(prepared.X.shape[1]),
        "task": prepared.targets.task,
        "target": prepared.targets.column,
        "classes": describe_classes(prepared.targets.classes),
        "normalize": prepared.normalize,
        "left_out": check.left_out,
        "notes": dict(check.notes),
    }


def _describe_model(problem: glru.Problem, strength: StrengthOptions, tol: float) -> dict[str, Any]:
    return {
        "loss": next(name for name, kind in LOSSES.items() if isinstance(problem.loss, kind)),
        "lam": None if strength.C is not None else float(problem.penalty.quadratic),
        "C": strength.C,
        "kappa": strength.kappa,
        "intercept": problem.fit_intercept,
        "tol": tol,
    }
