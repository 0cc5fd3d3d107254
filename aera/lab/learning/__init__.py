"""Learning: from graded responses to weights and gates."""
