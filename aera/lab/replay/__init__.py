"""Replay: what policies would have done on recorded responses, graded."""
