"""FastLoader beside other loaders, over plain crops, training recipes and places where pictures lie."""
