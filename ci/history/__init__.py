"""``python -m ci history``: what a platform's runs cost over time, and what got worse."""
