"""Evidence: what a prefix of responses looks like, in numbers."""
