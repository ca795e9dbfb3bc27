"""The transforms, one family a file: what each is, and how it is drawn."""
