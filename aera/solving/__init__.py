"""Solving: the decision loop, the controller, and the loops that feed them."""
