"""Commands of ``python -m ci`` that have no package of their own.

Each is imported only where it is asked for: all together take 0.5 s.
"""
