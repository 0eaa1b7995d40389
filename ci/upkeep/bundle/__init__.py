"""Offline bundles: one file with all that a run needs beside a Docker Engine."""
