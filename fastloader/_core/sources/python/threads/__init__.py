"""Workers that are threads."""
