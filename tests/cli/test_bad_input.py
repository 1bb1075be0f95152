"""Bad files, bad columns and bad options: a line that says what is wrong and what to do, and an exit code."""

import numpy as np
import polars as pl
import pytest

from tests.cli.running import answer, complaint, glru_command, sample, write

GOOD = "a,b,y\n1,2,0\n3,4,1\n5,5,0\n0,1,1\n"

BAD_TEXT = {
    "empty": ("", "must hold data; it is empty"),
    "only-a-header": ("a,b,y\n", "must hold at least one row"),
    "one-column": ("y\n1\n2\n", "at least two columns; its first line has 1"),
    "cut-short": (GOOD + "7,8", "cut short: its last line has 2 of 3 columns"),
    "too-many-fields": (GOOD + "7,8,9,10\n", "cannot be read: found more fields"),
    "open-quote": ('a,b,y\n1,"2,0\n3,4,1\n', "cannot be read"),
    "twice": ("a,a,y\n1,2,0\n3,4,1\n", "distinct column names; more than once: 'a'"),
    "numbers-as-names": ("1,2,0\n3,4,1\n", "must hold the names of the columns; it holds numbers (1, 2, 0, ...)"),
    "text-in-numbers": (
        GOOD + "12k,2,1\n",
        "text is in 'a' ('12k' among numbers in row 4). Encode categories (--one-hot), correct the values, call them missing (--missing)",
    ),
    "infinite": (GOOD + "inf,2,1\n", "columns must be finite; 'a' is inf in row 4"),
    "one-class": ("a,b,y\n1,2,1\n3,4,1\n", "the target 'y' must have two classes; all 2 rows are '1'"),
    "no-target": ("a,b,c\n1,2,1\n3,4,0\n", "target column must be named (--target)"),
    "target-missing": (
        "a,b,y\n1,2,1\n3,4,\n2,2,0\n",
        "the target 'y' must be known in every row; it is missing in 1, first in row 1",
    ),
    "constant": ("a,b,y\n1,2,1\n1,2,0\n", "all 2 are constant"),
    "one-row-of-a-class": ("a,b,y\n1,2,1\n", "must have two classes; all 1 rows"),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_bad_text(tmp_path, name):
    text, expected = BAD_TEXT[name]
    path = tmp_path / f"{name}.csv"
    path.write_text(text)
    assert expected in complaint("loocv", path, "--fit-once")


BAD_LIBSVM = {
    "words": ("1 1:2\n-1 one:3\n", "line 2: '-1 one:3'"),
    "pairs": ("1 1:2 7\n", "line 1"),
    "labels": ("yes 1:2\n", "line 1"),
    "zero": ("1 0:2\n-1 1:2\n", "line 1 has a column 0: give --zero-based"),
    "order": ("1 1:1\n-1 2:2 1:1\n", "line 2: columns must be in rising order"),
    "nan": ("1 1:nan\n-1 1:2\n", "no missing values; it has 1 (NaN)"),
    "one-class": ("1 1:1\n1 1:2\n", "must have two classes"),
    "csv": ("a,b,y\n1,2,0\n", "line 1"),
}


@pytest.mark.parametrize("name", BAD_LIBSVM)
def test_bad_libsvm(tmp_path, name):
    text, expected = BAD_LIBSVM[name]
    path = tmp_path / f"{name}.libsvm"
    path.write_text(text)
    assert expected in complaint("loocv", path)


@pytest.mark.parametrize("suffix", ["csv.gz", "csv.bz2", "csv.xz", "libsvm.gz", "npz", "parquet", "npz.xz"])
def test_cut_short(tmp_path, suffix):
    X, y = sample(n=200)
    path = write(tmp_path / f"data.{suffix}", X, y)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    message = complaint("loocv", path)
    assert "cut short" in message or "not an NPZ file" in message


@pytest.mark.parametrize("suffix", ["csv.gz", "csv.bz2", "csv.xz", "npz", "parquet", "csv", "libsvm"])
def test_noise(tmp_path, suffix):
    path = tmp_path / f"data.{suffix}"
    path.write_bytes(np.random.default_rng(0).bytes(500))
    complaint("loocv", path)


def test_npz_of_other_things(tmp_path):
    path = tmp_path / "data.npz"
    for arrays, expected in (
        ({"Z": np.eye(2)}, "must hold X, or data, indices, indptr, shape; it holds Z"),
        ({"X": np.eye(2)}, "must hold targets in y"),
        ({"X": np.ones(3), "y": np.ones(3)}, "two-dimensional"),
        ({"X": np.eye(3), "y": np.ones(2)}, "one entry per row of X, shape (3,); got (2,)"),
        ({"X": np.array([["a"]]), "y": np.ones(1)}, "real numbers"),
        ({"X": np.array([[np.nan, 1.0], [1.0, 2.0]]), "y": np.array([0, 1])}, "no missing values"),
    ):
        np.savez(path, **arrays)
        assert expected in complaint("loocv", path)
    np.savez(path, X=np.array([object()]), y=np.ones(1))
    assert "cannot be read" in complaint("loocv", path)
    np.save(tmp_path / "one.npy", np.eye(2))
    assert "single array, not an NPZ file" in complaint("loocv", tmp_path / "one.npy", "--format", "npz")


def test_nothing_is_unpickled(tmp_path):
    """A file with a pickled object that would write a file when it is loaded."""

    class Trap:
        def __reduce__(self):
            return (open, (str(tmp_path / "sprung"), "w"))

    trap = np.empty(1, dtype=object)
    trap[0] = Trap()
    np.savez(tmp_path / "data.npz", X=np.eye(2), y=trap)
    complaint("loocv", tmp_path / "data.npz")
    np.save(tmp_path / "data.npy", trap)
    complaint("loocv", tmp_path / "data.npy", "--format", "npz")
    assert not (tmp_path / "sprung").exists()


def test_a_hundred_thousand_columns(tmp_path):
    """A wide file works, and a bad value in it is found."""
    random = np.random.default_rng(0)
    X = random.integers(0, 3, (12, 100_000)).astype(float)
    names = ",".join(f"x{j}" for j in range(100_000)) + ",y"
    lines = [",".join(f"{v:.0f}" for v in row) + f",{k % 2}" for k, row in enumerate(X)]
    path = tmp_path / "wide.csv"
    path.write_text("\n".join([names, *lines]) + "\n")
    assert glru_command("loocv", path, "--lam", 1, "-q").stdout == ""
    lines[3] = lines[3].replace(",", ",oops,", 1).rsplit(",", 2)[0] + ",1"
    path.write_text("\n".join([names, *lines]) + "\n")
    assert "text is in 'x1' ('oops' among numbers in row 3)" in complaint("loocv", path, "--lam", 1)


def test_dates(tmp_path):
    """Dates are left out, and said to be; asked for, they count as days."""
    path = tmp_path / "data.parquet"
    frame = pl.DataFrame(
        {"when": [f"2021-01-{k:02d}" for k in range(1, 21)], "a": np.arange(20) % 7, "y": np.arange(20) % 2}
    )
    frame = frame.with_columns(pl.col("when").str.to_date(), took=pl.duration(days=pl.col("a")))
    frame.write_parquet(path)
    assert answer("loocv", path)["data"]["left_out"] == {"when": "dates", "took": "durations"}
    assert answer("loocv", path, "--keep", "when")["data"]["columns"] == 2
    assert "columns must hold numbers or text; 'took' holds Duration" in complaint("loocv", path, "--keep", "took")


def test_delimiters(tmp_path):
    """A tab is given as a shell passes it on; anything but one character is refused."""
    path = tmp_path / "data.csv"
    X, y = sample()
    pl.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": y}).write_csv(path, separator="\t")
    for tab in ("\t", r"\t"):
        glru_command("loocv", path, "--delimiter", tab)
    for wrong in ("", "ab", r"\t\t", "\n", '"', "\u00a7"):
        assert "the delimiter must be one ASCII character" in complaint("loocv", path, "--delimiter", wrong)


def test_places(tmp_path):
    assert "there is no such file" in complaint("loocv", tmp_path / "absent.csv")
    assert "it is a folder without Parquet files" in complaint("loocv", tmp_path, "--format", "csv")
    assert "a dataset must be known by name" in complaint("loocv", "no_such_data")
    (tmp_path / "data.xyz").write_text(GOOD)
    assert "given by its suffix" in complaint("loocv", tmp_path / "data.xyz")
    for option, name, said in (
        ("--out", "rows.txt", "must end in .csv or .parquet"),
        ("--plot", "a.gif", "must end in .png or .svg or .pdf"),
        ("--html", "a.txt", "must end in .html"),
        ("--out", "none/rows.csv", "folder that exists"),
    ):
        assert said in complaint("loocv", "iris:0v1", option, tmp_path / name)


def test_columns_that_are_not_there(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text(GOOD)
    assert "must be a column of" in complaint("loocv", path, "--target", "z")
    assert "columns to leave out must be in" in complaint("loocv", path, "--drop", "z")
    assert "a column besides those that are left out" in complaint("loocv", path, "--drop", "a,b")
    assert "--target 'mean radius' is for files" in complaint("loocv", "breast_cancer", "--target", "mean radius")
    assert "columns to leave out must be in iris:0v1" in complaint("loocv", "iris:0v1", "--drop", "size")
    assert "is a regression; use a regression loss" in complaint("loocv", "diabetes", "--loss", "logistic")


@pytest.mark.parametrize(
    "arguments",
    [
        ("loocv",),
        ("nothing",),
        ("loocv", "iris:0v1", "--lam", "much"),
        ("loocv", "iris:0v1", "--lam", "1", "--C", "1"),
        ("loocv", "iris:0v1", "--C", "0"),
        ("loocv", "iris:0v1", "--method", "magic"),
        ("loocv", "iris:0v1", "--what"),
        ("loocv", "iris:0v1", "--verify", "-1"),
        ("tune", "iris:0v1", "--lam", "1", "--C", "1"),
        ("tune", "iris:0v1", "--lam", "1:2"),
        ("tune", "iris:0v1", "--lam", "0,1"),
        ("whatif", "iris:0v1"),
        ("whatif", "iris:0v1", "--remove-rows", "one"),
    ],
)
def test_usage(arguments):
    assert "Usage" in complaint(*arguments, code=2) or "Error" in complaint(*arguments, code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--lam", "-1"), "lam"),
        (("--kappa", "-1"), "kappa"),
        (("--width", "0"), "--width must be a number above 0"),
        (("--loss", "hinge", "--method", "approx"), "smooth loss"),
    ],
)
def test_values_that_the_library_refuses(arguments, said):
    assert said in complaint("loocv", "iris:0v1", *arguments)
