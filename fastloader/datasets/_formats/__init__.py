"""The formats in which pictures lie, behind the datasets."""
