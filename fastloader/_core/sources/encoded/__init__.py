"""Pictures that samples leave encoded, in batches that Python makes."""
