"""Options shared by several commands, as dataclasses."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from glru.sklearn.objectives import NAMED_LOSSES

if TYPE_CHECKING:
    LossName = str
else:
    LossName = Literal[tuple(name for losses in NAMED_LOSSES.values() for name in losses)]

DATA, MODEL, OUTPUT = "Data", "Model", "Output"


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
        str | None,
        typer.Option(
            help="Column to predict. By default the one called target, label, class or y.", rich_help_panel=DATA
        ),
    ] = None
    positive: Annotated[
        str | None,
        typer.Option(
            help="Class that counts as +1; all others are -1. By default, three or more classes are modelled jointly.",
            rich_help_panel=DATA,
        ),
    ] = None
    drop: Annotated[str, typer.Option(help="Columns to leave out, separated by commas.", rich_help_panel=DATA)] = ""
    keep: Annotated[
        str,
        typer.Option(
            help="Columns to use even if they look like ids or dates, separated by commas; dates become days.",
            rich_help_panel=DATA,
        ),
    ] = ""
    id: Annotated[
        str | None,
        typer.Option(
            help="Column with the names of the rows, not used by the model. By default, one that looks like an id.",
            rich_help_panel=DATA,
        ),
    ] = None
    one_hot: Annotated[
        bool,
        typer.Option(
            "--one-hot/--no-one-hot", help="Turn text columns into columns of zeros and ones.", rich_help_panel=DATA
        ),
    ] = True
    impute: Annotated[
        Literal["mean", "median", "most-frequent"] | None,
        typer.Option(
            help="How to fill in missing numbers, by default with the mean; text always gets its most frequent value.",
            rich_help_panel=DATA,
        ),
    ] = None
    normalize: Annotated[
        Literal["auto", "dense", "sparse", "none"],
        typer.Option(
            help="dense: columns without variance are removed, the others get mean 0 and variance 1; sparse: the same "
            "without centring; none: nothing is done; auto: sparse for sparse matrices, else dense.",
            rich_help_panel=DATA,
        ),
    ] = "auto"
    format: Annotated[
        Literal["csv", "tsv", "parquet", "npz", "libsvm"] | None,
        typer.Option(help="Format of the file; by default taken from its suffix.", rich_help_panel=DATA),
    ] = None
    delimiter: Annotated[
        str | None,
        typer.Option(
            help=r"What separates the columns of a CSV file: one character, \t for a tab; by default recognised.",
            rich_help_panel=DATA,
        ),
    ] = None
    decimal: Annotated[
        Literal[".", ","] | None,
        typer.Option(help="Decimal mark of a CSV file; by default recognised.", rich_help_panel=DATA),
    ] = None
    encoding: Annotated[
        str | None,
        typer.Option(help="Encoding of a CSV file; by default UTF-8, else Windows-1252.", rich_help_panel=DATA),
    ] = None
    missing: Annotated[
        str,
        typer.Option(
            help="More words for a missing value, separated by commas, in addition to NA, n/a, ? and the like.",
            rich_help_panel=DATA,
        ),
    ] = ""
    header: Annotated[
        bool, typer.Option(help="Whether the first line holds the names of the columns.", rich_help_panel=DATA)
    ] = True
    zero_based: Annotated[
        bool, typer.Option("--zero-based", help="Columns of a LIBSVM file count from 0.", rich_help_panel=DATA)
    ] = False


@dataclass(frozen=True)
class LossOptions:
    """The loss and the training, without the penalty."""

    loss: Annotated[
        LossName | None,
        typer.Option(
            help="By default logistic for two classes, multinomial for more, squared for a regression.",
            rich_help_panel=MODEL,
        ),
    ] = None
    intercept: Annotated[
        bool,
        typer.Option(
            "--intercept/--no-intercept",
            help="Unpenalised intercept; the models of the paper have none.",
            rich_help_panel=MODEL,
        ),
    ] = True
    tol: Annotated[
        float, typer.Option(help="Relative duality gap to which models are trained.", rich_help_panel=MODEL)
    ] = 1e-6


@dataclass(frozen=True)
class StrengthOptions:
    """How strongly the model is regularised."""

    lam: Annotated[
        float | None,
        typer.Option(
            parser=parse_number,
            metavar="NUMBER",
            help="Strength of the L2 penalty added to the mean loss, by default 0.01; powers such as 2^-5 are accepted.",
            rich_help_panel=MODEL,
        ),
    ] = None
    C: Annotated[
        float | None,
        typer.Option(
            "--C",
            parser=parse_number,
            metavar="NUMBER",
            help="As in scikit-learn: C times the sum of the losses plus half the squared norm. Replaces --lam.",
            rich_help_panel=MODEL,
        ),
    ] = None
    kappa: Annotated[
        float, typer.Option(help="Strength of an L1 penalty in addition (elastic net).", rich_help_panel=MODEL)
    ] = 0.0


@dataclass(frozen=True)
class FileOptions:
    """Where numbers go."""

    json: Annotated[
        bool,
        typer.Option("--json", help="Print the result as JSON (docs/cli.md has the schema).", rich_help_panel=OUTPUT),
    ] = False
    out: Annotated[
        Path | None, typer.Option(help="Write one line per row: .csv or .parquet.", rich_help_panel=OUTPUT)
    ] = None
    table: Annotated[
        Literal["md", "tex", "html"] | None,
        typer.Option(help="Print the result as a table for a paper: Markdown, LaTeX or HTML.", rich_help_panel=OUTPUT),
    ] = None
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but errors (and --json).", rich_help_panel=OUTPUT)
    ] = False
    log: Annotated[
        Path | None,
        typer.Option(
            help="Append the command, its result or error, and the times to this file.", rich_help_panel=OUTPUT
        ),
    ] = None


@dataclass(frozen=True)
class OutputOptions(FileOptions):
    """Where numbers, pictures and reports go."""

    plot: Annotated[Path | None, typer.Option(help="Write a picture: .png, .svg or .pdf.", rich_help_panel=OUTPUT)] = (
        None
    )
    html: Annotated[
        Path | None, typer.Option(help="Write a report for the browser, as one file.", rich_help_panel=OUTPUT)
    ] = None


MaxSeconds = Annotated[
    float | None,
    typer.Option(
        "--max-seconds",
        help="Stop after this many seconds with what is proven by then; the exit code is 3.",
        rich_help_panel=OUTPUT,
    ),
]

Checkpoint = Annotated[
    Path | None,
    typer.Option(
        help="Keep finished work in this file; running the same command again continues from it.",
        rich_help_panel=OUTPUT,
    ),
]
