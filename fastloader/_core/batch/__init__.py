"""What a batch is made of; erasing and mixing."""
