"""What a run is: its plan, its events, its tests and its results."""
