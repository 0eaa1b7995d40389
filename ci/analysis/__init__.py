"""What runs say beyond their own verdict: where operators ran, and what has changed."""
