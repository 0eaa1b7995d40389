"""What one run reports: from the files that it leaves to the row of the table. Pure."""
