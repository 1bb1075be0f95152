"""``python -m tests.attack``: attack for ``ATTACK_SECONDS`` seconds (600) from ``ATTACK_SEED`` (0) on.

``ATTACK_CASES``: ``bounds`` (certificates), ``answers`` (trained models, labels, choices), ``refits`` (refitted preprocessing),
``pipelines`` (the same from raw data on), ``multinomial`` (one score per class), ``deletions`` (influence and
the jackknife), ``generalised`` (bounds of losses with a log link), or by default an equal share of the time each.
"""

import os
import sys

from tests.attack.campaign import GROUPS, campaign

if __name__ == "__main__":
    asked = os.environ.get("ATTACK_CASES")
    groups = [asked] if asked else list(GROUPS)
    seconds = float(os.environ.get("ATTACK_SECONDS", "600")) / len(groups)
    failed = False
    for group in groups:
        report = campaign(int(os.environ.get("ATTACK_SEED", "0")), seconds=seconds, group=group)
        print(f"{group}: {report}", flush=True)
        failed |= bool(report.wrong or report.crashes)
    sys.exit(failed)
