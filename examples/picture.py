"""Draw the picture of the README: exact leave-one-out cross-validation of a bundled dataset (needs matplotlib)."""

from pathlib import Path

import matplotlib as mpl
from sklearn.datasets import load_breast_cancer
from sklearn.preprocessing import scale

import glru

mpl.use("Agg")


def main() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    result = glru.loocv(glru.Problem(scale(X), y, penalty=glru.L2(0.01)))
    display = glru.LOOCVDisplay.from_result(result).plot()
    target = Path(__file__).parent.parent / "docs" / "loocv.png"
    display.figure_.savefig(target, dpi=120)
    print(f"{result}\nwritten: {target.name}")


if __name__ == "__main__":
    main()
