"""Offline bundles: one file with everything that a run needs, except a Docker Engine."""
