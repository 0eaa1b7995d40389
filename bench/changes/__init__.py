"""Compares how well methods detect change points: ours, other libraries, and thresholds."""
