"""torchvision's datasets. Each recogniser follows what the class's own __getitem__ reads."""
