"""The dashboard: a folder of pages, made from the store, that a browser opens without a server."""
