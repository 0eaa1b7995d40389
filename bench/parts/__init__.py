"""One module per part of the benchmark; each yields the measurements of its rows in the table."""
