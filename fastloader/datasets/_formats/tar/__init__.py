"""The shards behind `TarImages`."""
