"""Text, lines, files, processes and messages: used by every room."""
