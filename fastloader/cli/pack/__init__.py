"""fastloader pack."""
