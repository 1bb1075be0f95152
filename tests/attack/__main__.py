"""``python -m tests.attack``: attack the certificates for ``ATTACK_SECONDS`` seconds (600) from ``ATTACK_SEED`` (0) on."""

import os
import sys

from tests.attack.campaign import campaign

if __name__ == "__main__":
    report = campaign(int(os.environ.get("ATTACK_SEED", "0")), seconds=float(os.environ.get("ATTACK_SECONDS", "600")))
    print(report)
    sys.exit(bool(report.wrong or report.crashes))
