"""What a loader shows of itself: a line of text, the pictures of a batch."""
