"""The parts of a batch, and erasing and mixing."""
