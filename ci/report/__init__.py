"""Results, comparisons and histories: in a terminal, as Markdown, as JSON."""
