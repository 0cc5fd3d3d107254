"""Voting: the weight of each vote, and the answer that is returned."""
