"""``python -m ci doctor``: whether this site has what a run of a platform needs.

A check gathers facts and yields findings; what the facts mean is decided by pure functions.
"""
