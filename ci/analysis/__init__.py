"""Analysis of several runs: series, changes, causes, comparisons."""
