"""The reader of chains of transforms: torchvision's (v1 and v2), timm's and ours."""
