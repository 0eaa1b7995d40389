"""``python -m ci doctor``: check that this site has everything that a run of a platform needs.

A check gathers facts and yields findings; pure functions judge the facts.
"""
