"""Reports: one self-contained HTML file that explains a result, with plots and tables to explore."""

from glru.report.frame import page
from glru.report.sections import list_after_sections, list_loocv_sections, list_path_sections, list_stepwise_sections

__all__ = [
    "list_after_sections",
    "list_loocv_sections",
    "list_path_sections",
    "list_stepwise_sections",
    "page",
]
