"""The command line: ``glru loocv``, ``select``, ``whatif``, ``tune``, ``certify``, ``verify``, ``data``, ``version``."""

import sys
import warnings
from typing import Any

from glru._extras import require

USAGE = 2
"""Exit code of a command that cannot be run as it was given."""


def main() -> None:
    """Run the command line."""
    try:
        for module in ("rich", "typer"):
            require(module, "cli", "the glru command")
    except ModuleNotFoundError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(USAGE) from None
    from glru.cli.app import app

    warnings.showwarning = _show_warning
    app()


def _show_warning(message: Warning | str, *details: Any, **options: Any) -> None:
    sys.stderr.write(f"warning: {message}\n")
