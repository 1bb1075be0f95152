"""Reports: one self-contained HTML file that explains a result, with plots and tables to explore."""

from glru.report.after import after_page
from glru.report.loocv import loocv_page
from glru.report.page import Provenance
from glru.report.paths import path_page, stepwise_page

__all__ = ["Provenance", "after_page", "loocv_page", "path_page", "stepwise_page"]
