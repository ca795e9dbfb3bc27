"""The names that users know from other loaders, over fastloader's own."""
