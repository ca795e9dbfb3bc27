"""What ranks share: the samples, and the facts on which they agree."""
