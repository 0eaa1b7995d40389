"""What holds a change back: what a regression is, and the rules of the gates."""
