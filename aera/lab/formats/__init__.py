"""Files that other programs write, in and out."""
