"""The command line: ``glru loocv``, ``select``, ``whatif``, ``tune``, ``certify``, ``data``, ``version``."""

import sys

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

    app()
