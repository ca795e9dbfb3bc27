"""Memory that worker processes collate batches into."""
