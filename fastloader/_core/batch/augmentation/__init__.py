"""Random erasing, Mixup and CutMix on whole batches."""
