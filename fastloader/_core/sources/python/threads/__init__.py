"""Worker threads."""
