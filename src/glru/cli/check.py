"""``glru verify`` checks proven scores against models retrained in arbitrary precision; ``glru certify`` bounds how far a fitted model is from its optimum."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

import glru
from glru._options import Budget
from glru.cli import inputs, output
from glru.cli.loocv import describe
from glru.cli.options import DataOptions, FileOptions, LossOptions, MaxSeconds, StrengthOptions
from glru.cli.output import REFUTED, TIME_IS_UP, show_progress
from glru.datasets import Prepared
from glru.datasets.catalogue import BUNDLED
from glru.datasets.check import Check
from glru.datasets.preparation import name_class
from glru.linalg import RawMatrix


def verify(
    data: DataOptions,
    loss: LossOptions,
    strength: StrengthOptions,
    out: FileOptions,
    sample: Annotated[int, typer.Option(min=1, help="Held-out scores to check: half of them nearest to zero.")] = 20,
    digits: Annotated[int, typer.Option(min=30, help="Digits of the retraining.")] = 50,
    seed: Annotated[int, typer.Option(help="Random seed for the choice of the other half.")] = 0,
    max_seconds: MaxSeconds = None,
) -> None:
    """Check a sample of proven held-out scores against models retrained in arbitrary precision by independent code."""
    output.check(out, inputs.find_files(inputs.find_file(data)))
    begin, budget = time.perf_counter(), Budget(max_seconds)
    with show_progress(out.quiet) as report:
        job = inputs.make_job(data, loss, strength)
        inputs.require_pairs(job)
        result = glru.loocv(job.problem, tol=loss.tol, progress=report, max_seconds=inputs.seconds_left(budget))
        found = glru.verify(
            result,
            job.problem,
            sample=sample,
            digits=digits,
            seed=seed,
            max_seconds=inputs.seconds_left(budget),
            progress=report,
        )
    seconds = {"read": job.seconds, "total": time.perf_counter() - begin}
    settings = {"sample": sample, "digits": digits, "seed": seed}
    output.deliver(make_verify_outcome(job, found, settings, seconds), out)
    if found.n_wrong:
        raise typer.Exit(REFUTED)
    if budget.spent and (found.unchecked or found.undetermined):
        raise typer.Exit(TIME_IS_UP)


def make_verify_outcome(
    job: inputs.Job, found: glru.results.Verification, settings: dict[str, Any], seconds: dict[str, float]
) -> output.Outcome:
    """What was found, in every output format."""
    values: dict[str, Any] = {
        "checked": found.checked,
        "wrong": list(found.wrong),
        "unchecked": found.unchecked,
        "undetermined": found.undetermined,
        "tightest": found.tightest,
        "digits": found.digits,
    }
    lines = describe(job)
    lines.append(("preparation", "fitted once, to all rows; the held-out scores of these columns are checked"))
    lines.append(("checked", f"{found.checked} bounds, by models retrained to {found.digits} digits"))
    lines.append(("wrong", f"{found.n_wrong}" + ("; please report this" if found.n_wrong else "")))
    lines += [("wrong bound", text) for text in found.wrong]
    if found.unchecked:
        lines.append(("not checked", f"{found.unchecked}, for lack of time, precision or an optimum"))
    if found.undetermined:
        lines.append(("without bounds", f"{found.undetermined} numbers"))
    if found.checked:
        lines.append(
            (
                "closest to a bound",
                f"{found.tightest:.3g} of the half-width of its interval (1: in the middle, 0: at the bound)",
            )
        )
    lines.append(("time", f"{output.format_duration(seconds['total'])} in all"))
    table = {"wrong": list(found.wrong)}
    return output.Outcome(
        "verify",
        f"Held-out scores of {job.prepared.name} against retraining in {found.digits} digits",
        lines,
        job.facts | {"settings": settings},
        values,
        seconds,
        table=lambda: table,
    )


def certify(
    data: DataOptions,
    out: FileOptions,
    model: Annotated[
        Path, typer.Option(help="A fitted linear model, saved by joblib. Such a file can run code: open only your own.")
    ],
    max_seconds: MaxSeconds = None,
) -> None:
    """Bound how far a fitted model is from the optimum of its objective, and find the labels that this could change."""
    output.check(out, inputs.find_files(inputs.find_file(data), model))
    begin = time.perf_counter()
    with show_progress(out.quiet):
        estimator = load_model(model)
        task = "classification" if hasattr(estimator, "classes_") else "regression"
        if data.normalize == "auto":
            data = replace(data, normalize="none")
        prepared, check = inputs.prepare_data(data, task, as_is=True)
        read = time.perf_counter() - begin
        X, y = _order_columns(prepared, estimator), _convert_labels(prepared, estimator)
        try:
            proof = glru.certify(estimator, X, y)
        except TypeError as error:
            raise ValueError(str(error)) from None
        columns = _make_table(prepared, proof, X, task)
    seconds = {"read": read, "total": time.perf_counter() - begin}
    output.deliver(make_certify_outcome(prepared, check, str(model), proof, columns, seconds), out)


def load_model(path: Path) -> Any:
    """The estimator in a file."""
    import joblib

    if not path.is_file():
        raise ValueError(f"the model {path} must exist; there is no such file.")
    try:
        estimator = joblib.load(path)
    except Exception as error:
        raise ValueError(
            f"{path} cannot be loaded as a model saved by joblib with these versions ({error!r})."
        ) from None
    if not hasattr(estimator, "get_params"):
        raise ValueError(f"{path} must hold a scikit-learn estimator; it holds {type(estimator).__name__}.")
    return estimator


def _order_columns(prepared: Prepared, estimator: Any) -> RawMatrix:
    """The data in the order of the columns that the model was fitted to."""
    names = getattr(estimator, "feature_names_in_", None)
    if names is None or not prepared.is_table:
        return prepared.X
    absent = [name for name in names if name not in prepared.names]
    if absent or len(names) != len(prepared.names):
        extra = [name for name in prepared.names if name not in set(names)]
        raise ValueError(
            f"the data must have the columns that the model was fitted to; missing: {', '.join(absent) or 'none'}; not of the "
            f"model: {', '.join(extra) or 'none'} (--drop leaves columns out)."
        )
    return prepared.X[:, [prepared.names.index(name) for name in names]]


def _convert_labels(prepared: Prepared, estimator: Any) -> NDArray[Any]:
    """The targets as the model knows them."""
    if prepared.targets.classes is None:
        return prepared.y
    classes = prepared.targets.classes
    known = {name_class(value): value for value in estimator.classes_.tolist()}
    places = (prepared.y if len(classes) > 2 else prepared.y > 0.0).astype(np.intp)
    ways = [classes, *([("-1", "1")] if len(classes) == 2 else [])]
    if prepared.name in BUNDLED:
        # scikit-learn has numbers for them.
        ways.append(tuple(map(str, range(len(classes)))))
    way = next((way for way in ways if set(way) == set(known)), None)
    if way is None:
        raise ValueError(
            f"the model's classes must be those of the data, {' and '.join(classes)}; got {', '.join(known)}."
        )
    return np.array([known[name] for name in way])[places]


def _make_table(prepared: Prepared, proof: glru.results.ModelCertificate, X: RawMatrix, task: str) -> dict[str, Any]:
    lower, upper = proof.score_bounds(X)
    columns: dict[str, Any] = {"row": np.arange(X.shape[0])}
    if prepared.ids:
        columns["id"] = list(prepared.ids)
    parts = {"score": proof.scores(X), "score_lower": lower, "score_upper": upper}
    if lower.ndim == 1 or lower.shape[1] == 1:
        columns |= {name: np.ravel(part) for name, part in parts.items()}
    else:
        labels = [name_class(value) for value in proof.adapted.estimator.classes_.tolist()]
        columns |= {f"{name}_{label}": part[:, k] for k, label in enumerate(labels) for name, part in parts.items()}
    if task == "classification":
        columns["decided"] = proof.decided(X)
    return columns


def make_certify_outcome(
    prepared: Prepared,
    check: Check,
    path: str,
    proof: glru.results.ModelCertificate,
    columns: dict[str, Any],
    seconds: dict[str, float],
) -> output.Outcome:
    """What is proven about the model, in every output format."""
    name = type(proof.adapted.estimator).__name__
    ends = [
        columns[name.replace("lower", "upper")] - columns[name] for name in columns if name.startswith("score_lower")
    ]
    widths, n_rows = np.concatenate(ends), prepared.X.shape[0]
    decided = int(columns["decided"].sum()) if "decided" in columns else None
    values: dict[str, Any] = {
        "objective": proof.objective,
        "gap": proof.gap,
        "relative_gap": proof.relative_gap,
        "radius": proof.radius,
        "decided": decided,
        "widths": {"median": float(np.median(widths)), "largest": float(widths.max())},
    }
    lines = [
        ("data", f"{prepared.X.shape[0]} rows x {prepared.X.shape[1]} columns"),
        ("model", f"{name} of {path}"),
        ("objective", f"{proof.objective:.10g}, above its optimum by at most {proof.gap:.3g}"),
        ("relative gap", f"{proof.relative_gap:.3g}"),
        ("coefficients", f"at most {proof.radius:.3g} from the optimal ones"),
        ("scores", f"the optimum's are known to a median width of {np.median(widths):.3g}, largest {widths.max():.3g}"),
    ]
    if decided is not None:
        lines.append(("labels", f"{decided} of {n_rows} are proven to be the optimum's"))
    lines.append(("time", f"{output.format_duration(seconds['total'])} in all"))
    facts = {"data": inputs.describe_data(prepared, check), "model": {"file": path, "estimator": name}, "settings": {}}
    title = f"Certificate of {name} on {prepared.name}"
    return output.Outcome("certify", title, lines, facts, values, seconds, table=lambda: columns)
