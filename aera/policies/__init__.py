"""Policies: given a prefix, stop or continue."""
