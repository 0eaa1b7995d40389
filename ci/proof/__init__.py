"""Signed statements about a run that other tools can verify."""
