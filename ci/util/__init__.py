"""Text, lines, files, processes and messages: what every room uses."""
