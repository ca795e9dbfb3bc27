"""fastloader index."""
