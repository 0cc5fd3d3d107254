"""Calibrating: the threshold of a policy, chosen or certified."""
