"""Front doors: the names that people know from other loaders, over fastloader's own."""
