"""``python -m benchmarks [NAME ...]``: run all benchmarks, or those named; ``zoo``, ``floor`` and ``folds`` take options."""

import importlib
import sys

from benchmarks import floor, folds, zoo
from benchmarks.data import folder
from benchmarks.timing import machine

NAMES = [
    "zoo",
    "floor",
    "folds",
    "loocv",
    "wide",
    "stepwise",
    "drop_ins",
    "pipelines",
    "influence",
    "memory",
    "versions",
    "carry_cost",
    "tightness",
    "device",
    "scale",
]
NEEDS_DATA = {"tightness"}


def main() -> None:
    """Run the benchmarks named on the command line, or all of them."""
    for module in (zoo, floor, folds):
        if sys.argv[1:2] == [module.__name__.rpartition(".")[2]]:
            print(machine())
            module.run(sys.argv[2:])
            return
    names = sys.argv[1:] or NAMES
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        sys.exit(f"no benchmark called {', '.join(unknown)}; there are {', '.join(NAMES)}.")
    print(machine())
    for name in names:
        if name in NEEDS_DATA and folder() is None:
            print(f"\n{name}: skipped; set GLRU_DATA to the folder with the datasets.")
        else:
            importlib.import_module(f"benchmarks.{name}").run()


if __name__ == "__main__":
    main()
