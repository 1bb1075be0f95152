"""``python -m tests.golden [DATA ...]``: record the answers of all data sets, or of those named."""

import sys

from tests.golden.record import record

if __name__ == "__main__":
    sys.exit(record(sys.argv[1:]))
