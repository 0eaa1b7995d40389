"""The one error that the generators raise for bad input."""

from __future__ import annotations


class GenerationError(Exception):
    """Input that nothing can be generated from; printed as a message, exit code 2.

    Says the file and line where there is one, what was found, what was expected and what
    to do.
    """
