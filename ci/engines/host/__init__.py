"""The host engine: a fresh virtual environment on this machine."""
