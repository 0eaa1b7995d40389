"""A run: its coordinator, its platforms, its progress and its records."""
