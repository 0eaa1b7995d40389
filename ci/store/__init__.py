"""The store: results in, queries out."""
