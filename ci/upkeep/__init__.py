"""What keeps a site in order."""
