"""From encoded bytes to pixels."""
