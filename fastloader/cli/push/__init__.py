"""``fastloader push``: a folder of pictures into a MongoDB collection."""
