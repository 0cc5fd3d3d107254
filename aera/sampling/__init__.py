"""Sampling: where responses come from, and recording them."""
