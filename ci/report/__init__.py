"""The results table: one row per platform, the same columns everywhere."""

from ci.report.markdown import results_markdown, table_markdown
from ci.report.terminal import print_results

__all__ = ["print_results", "results_markdown", "table_markdown"]
