"""A pool of machines: a Ray cluster, on whose hosts the local engines run the platforms."""
