"""Models of a run: platforms, plans, the agent's job, events, tests, results."""
