"""Shards of an object store that are kept on this machine."""
