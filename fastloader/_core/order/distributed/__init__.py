"""What ranks share: the samples, and what they agree on."""
