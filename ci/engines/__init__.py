"""Engines: where plans are carried out."""
