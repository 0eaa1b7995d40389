"""What the agent and the program that judges its run share: standard library, Python >= 3.8."""
