"""Options shared by several commands, as dataclasses."""

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from glru.datasets.files import Format
from glru.datasets.preparation import Imputation, Scaling
from glru.sklearn.objectives import NAMED_LOSSES

if TYPE_CHECKING:
    LossName = str
else:
    LossName = Literal[tuple(name for losses in NAMED_LOSSES.values() for name in losses)]

data_option, model_option, output_option = (
    partial(typer.Option, rich_help_panel=panel) for panel in ("Data", "Model", "Output")
)


def parse_number(text: str) -> float:
    """Parse a number, which may be a power such as 2^-5."""
    base, mark, power = text.partition("^")
    try:
        value = float(base) ** float(power) if mark else float(base)
    except (ValueError, ZeroDivisionError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise typer.BadParameter(f"{text!r} is not a number. Write 0.01, 1e-2 or 2^-7.")
    return value


@dataclass(frozen=True)
class DataOptions:
    """What to read and how to prepare its columns."""

    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="A dataset by name (see: glru data) or a file: CSV, TSV, Parquet, NPZ or LIBSVM, also .gz, .bz2, .xz, .zip; a folder "
            "of Parquet files, a pattern such as 'part-*.csv', or - for the standard input.",
        ),
    ]
    target: Annotated[
        str | None, data_option(help="Column to predict. By default the one called target, label, class or y.")
    ] = None
    positive: Annotated[
        str | None,
        data_option(help="Class that counts as +1, all others as -1; by default all classes are modelled jointly."),
    ] = None
    drop: Annotated[
        str,
        data_option(
            help="Columns to leave out, separated by commas; a name with a comma in double quotes: 'age,\"weight, kg\"'."
        ),
    ] = ""
    keep: Annotated[
        str,
        data_option(
            help="Columns to use even if they look like ids or dates (which become days), separated by commas."
        ),
    ] = ""
    id: Annotated[
        str | None,
        data_option(
            help="Column with the names of the rows, not used by the model; by default one that looks like an id."
        ),
    ] = None
    one_hot: Annotated[
        bool, data_option("--one-hot/--no-one-hot", help="Turn text columns into columns of zeros and ones.")
    ] = True
    impute: Annotated[
        Imputation | None,
        data_option(
            help="How to fill in missing numbers, by default by their mean; text gets its most frequent value."
        ),
    ] = None
    normalize: Annotated[
        Literal["auto", Scaling],
        data_option(
            help="dense: columns without variance are removed, the others get mean 0 and variance 1; sparse: the same "
            "without centring; none: nothing is done; auto: sparse for sparse matrices, else dense."
        ),
    ] = "auto"
    format: Annotated[Format | None, data_option(help="Format of the file; by default taken from its suffix.")] = None
    delimiter: Annotated[
        str | None,
        data_option(
            help=r"What separates the columns of a CSV file, such as , or \t for a tab; by default recognised."
        ),
    ] = None
    decimal: Annotated[
        Literal[".", ","] | None, data_option(help="Decimal mark of a CSV file; by default recognised.")
    ] = None
    encoding: Annotated[
        str | None, data_option(help="Encoding of a CSV file; by default UTF-8, else Windows-1252.")
    ] = None
    missing: Annotated[
        str, data_option(help="More words for a missing value besides NA, n/a, ? and the like, separated by commas.")
    ] = ""
    header: Annotated[bool, data_option(help="Whether the first line holds the names of the columns.")] = True
    zero_based: Annotated[bool, data_option("--zero-based", help="Columns of a LIBSVM file count from 0.")] = False


@dataclass(frozen=True)
class LossOptions:
    """The loss and the training, without the penalty."""

    loss: Annotated[
        LossName | None,
        model_option(help="By default logistic for two classes, multinomial for more, squared for a regression."),
    ] = None
    intercept: Annotated[
        bool,
        model_option("--intercept/--no-intercept", help="Unpenalised intercept; the models of the paper have none."),
    ] = True
    tol: Annotated[float, model_option(help="Relative duality gap to which models are trained.")] = 1e-6


@dataclass(frozen=True)
class StrengthOptions:
    """How strongly the model is regularised."""

    lam: Annotated[
        float | None,
        model_option(
            parser=parse_number,
            metavar="NUMBER",
            help="Strength of the L2 penalty added to the mean loss, by default 0.01; powers such as 2^-5 are accepted.",
        ),
    ] = None
    C: Annotated[
        float | None,
        model_option(
            "--C",
            parser=parse_number,
            metavar="NUMBER",
            help="As in scikit-learn: C times the sum of the losses plus half the squared norm. Replaces --lam.",
        ),
    ] = None
    kappa: Annotated[float, model_option(help="Strength of an L1 penalty in addition (elastic net).")] = 0.0


@dataclass(frozen=True)
class FileOptions:
    """Where numbers go."""

    json: Annotated[bool, output_option("--json", help="Print the result as JSON (docs/cli.md has the schema).")] = (
        False
    )
    out: Annotated[Path | None, output_option(help="Write one line per row: .csv or .parquet.")] = None
    table: Annotated[
        Literal["md", "tex", "html"] | None,
        output_option(help="Print the result as a table for a paper: Markdown, LaTeX or HTML."),
    ] = None
    quiet: Annotated[bool, output_option("--quiet", "-q", help="Print nothing but errors (and --json).")] = False
    log: Annotated[
        Path | None, output_option(help="Append the command, its result or error, and the times to this file.")
    ] = None


@dataclass(frozen=True)
class OutputOptions(FileOptions):
    """Where numbers, pictures and reports go."""

    plot: Annotated[Path | None, output_option(help="Write a picture: .png, .svg or .pdf.")] = None
    html: Annotated[Path | None, output_option(help="Write a report for the browser, as one file.")] = None


MaxSeconds = Annotated[
    float | None,
    output_option(
        "--max-seconds", help="Stop after this many seconds with what is proven by then; the exit code is 3."
    ),
]

Checkpoint = Annotated[
    Path | None,
    output_option(help="Keep finished work in this file; running the same command again continues from it."),
]
