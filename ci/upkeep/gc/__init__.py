"""``python -m ci gc``: removes what earlier runs left, by age and size, and only our own."""
