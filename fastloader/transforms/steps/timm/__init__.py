"""The transforms that timm has and torchvision has not, or has otherwise."""
