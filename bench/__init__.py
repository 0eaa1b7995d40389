"""What the library costs: ``nox -s bench``, or ``python -m bench`` where torch is installed."""
