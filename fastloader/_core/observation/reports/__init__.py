"""What a user reads of the counts."""
