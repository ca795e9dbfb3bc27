"""The folders of arrays that ``fastloader pack`` writes."""
