"""``python -m ci compare``: what changed between two runs, commits, branches or contracts."""
