"""Runs that come from elsewhere, and tables that go there."""
