"""From a run's result files to the row of the table. Pure."""
