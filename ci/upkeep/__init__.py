"""Upkeep of a site: doctor, gc and bundles."""
