"""What several runs say: series, changes, causes, comparisons."""
