"""Tar shards that lie in an object store, and the order that reads them in few requests."""
