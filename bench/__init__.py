"""Measures the library's cost: ``nox -s bench``, or ``python -m bench`` with torch installed."""
