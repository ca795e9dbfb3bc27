"""From the encoded files of a batch to its pictures."""
