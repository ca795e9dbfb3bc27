"""What lies in an object store: reading it, and keeping shards of it on this machine."""
