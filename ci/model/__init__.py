"""What a run is: platforms, plans, the agent's job, events, tests, results."""
