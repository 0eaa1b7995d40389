"""What several runs show: series, changes, causes, comparisons."""
