"""Judging: who learns from what and is tested on what; intervals and tests."""
