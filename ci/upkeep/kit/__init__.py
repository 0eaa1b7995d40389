"""The kit of a platform: one folder and one command for a machine without a network."""
