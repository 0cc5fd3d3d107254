"""Reading: from a response's text to its answer, and when two answers are the same."""
