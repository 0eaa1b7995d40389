"""What a run says: from the files that it leaves to the row of the table. Pure."""
