"""Pictures, from encoded bytes to pixels."""
