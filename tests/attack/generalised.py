"""Hostile problems of losses with a log link: tiny and huge counts, offsets, groups without a count; asked as in ``cases``."""

from collections.abc import Callable, Iterator

import numpy as np

from tests.attack.cases import Answer, changes, column_families, points, row_families
from tests.attack.generators import LOG_LINK, drawing

Kind = Callable[[np.random.Generator], Iterator[Answer]]


def of_log_link(kind: Kind) -> Kind:
    """A kind of cases whose problems have a log link."""

    def asked(random: np.random.Generator) -> Iterator[Answer]:
        with drawing(LOG_LINK):
            yield from kind(random)

    return asked


GENERALISED = tuple(map(of_log_link, (changes, points, row_families, row_families, changes, column_families)))
