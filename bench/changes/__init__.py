"""How well change points are told from noise: ours, other libraries, and thresholds."""
