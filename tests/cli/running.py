"""Running the command line inside the test's process, and data in every format."""

import bz2
import gzip
import json
import lzma

import numpy as np
import polars as pl
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from glru.cli.app import app

COMPRESSIONS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def glru_command(*arguments, code=0, app=app):
    """The result of a command, which must end with a code; what it printed must be no traceback."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
    assert "Traceback" not in result.stderr
    return result


def answer(*arguments):
    """The JSON that a command prints."""
    result = glru_command(*arguments, "--json")
    assert result.stderr == ""
    return json.loads(result.stdout)


def complaint(*arguments, code=1, app=app):
    """The message of a command that fails; nothing is printed on the standard output."""
    result = glru_command(*arguments, code=code, app=app)
    if code == 1:
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1
    return result.stderr


def sample(n=40, d=4, seed=0):
    """Data of two classes with a few errors."""
    random = np.random.default_rng(seed)
    X = random.normal(1.0, 2.0, (n, d)).round(3)
    y = np.where((X - 1.0) @ np.arange(1.0, d + 1.0) + random.normal(0.0, 3.0, n) > 0.0, 1, 0)
    return X, y


def standardise(X, with_mean=True):
    """Data as the commands scale it, for comparison with the library."""
    return StandardScaler(with_mean=with_mean).fit_transform(X)


def write(path, X, y):
    """Write data in the format that a file's name says."""
    suffixes = path.suffixes
    packed = COMPRESSIONS.get(suffixes[-1])
    plain = path.with_suffix("") if packed else path
    suffix = plain.suffix
    if suffix in (".csv", ".tsv", ".parquet"):
        frame = pl.DataFrame({f"x{j}": X[:, j] for j in range(X.shape[1])} | {"y": y})
        if suffix == ".parquet":
            frame.write_parquet(plain)
        else:
            frame.write_csv(plain, separator="," if suffix == ".csv" else "\t")
    elif suffix == ".npz":
        np.savez(plain, X=X, y=y)
    else:
        dump_svmlight_file(sp.csr_matrix(X), y, str(plain), zero_based=False)
    if packed:
        path.write_bytes(packed(plain.read_bytes()))
        plain.unlink()
    return path
