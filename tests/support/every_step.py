"""A step of every kind that is native, of ours, of torchvision's and of timm's."""

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")


def modes(m):
    from_torchvision = getattr(m, "InterpolationMode", None)
    return {
        name: name if from_torchvision is None else from_torchvision(name)
        for name in INTERPOLATIONS
    }


# name: what makes the transform of a module, which is ours or one of torchvision's
STEPS = {
    **{
        f"RandomCrop {mode}": lambda m, mode=mode: m.RandomCrop((20, 31), 2, True, 7, mode)
        for mode in ("constant", "edge", "reflect", "symmetric")
    },
    "RandomCrop sides": lambda m: m.RandomCrop(24, (1, 2, 3, 4), fill=(1, 2, 3)),
    **{
        f"Pad {mode}": lambda m, mode=mode: m.Pad((3, 1), 9, mode)
        for mode in ("constant", "edge", "reflect", "symmetric")
    },
    **{
        f"RandomRotation {name}": lambda m, name=name: m.RandomRotation(60, modes(m)[name], fill=5)
        for name in ("nearest", "bilinear", "bicubic")
    },
    "RandomRotation about a centre": lambda m: m.RandomRotation((90, 90), center=(3, 4)),
    **{
        f"RandomAffine {name}": lambda m, name=name: m.RandomAffine(
            30, (0.2, 0.1), (0.6, 1.5), (-20, 20, -10, 10), modes(m)[name], (3, 2, 1), (7, 9)
        )
        for name in ("nearest", "bilinear", "bicubic")
    },
    "RandomAffine about the middle": lambda m: m.RandomAffine(180, (0.3, 0.3), shear=15),
    **{
        f"RandomPerspective {name}": lambda m, name=name: m.RandomPerspective(
            0.6, 0.9, modes(m)[name], 4
        )
        for name in ("nearest", "bilinear", "bicubic")
    },
    **{
        f"Resize {name}": lambda m, name=name: m.Resize((13, 40), modes(m)[name])
        for name in INTERPOLATIONS
    },
    **{
        f"RandomResizedCrop {name}": lambda m, name=name: m.RandomResizedCrop(
            16, interpolation=modes(m)[name]
        )
        for name in INTERPOLATIONS
    },
    "Resize shorter": lambda m: m.Resize(17, max_size=20),
    "CenterCrop": lambda m: m.CenterCrop((11, 40)),
    "RandomHorizontalFlip": lambda m: m.RandomHorizontalFlip(),
    "RandomVerticalFlip": lambda m: m.RandomVerticalFlip(),
    "ColorJitter": lambda m: m.ColorJitter(0.4, (0.2, 1.9), 0.8, 0.3),
    "RandomGrayscale": lambda m: m.RandomGrayscale(0.5),
    "Grayscale": lambda m: m.Grayscale(3),
    "RandomInvert": lambda m: m.RandomInvert(),
    "RandomPosterize": lambda m: m.RandomPosterize(3),
    "RandomSolarize": lambda m: m.RandomSolarize(99),
    "RandomAdjustSharpness": lambda m: m.RandomAdjustSharpness(2.5),
    "RandomAutocontrast": lambda m: m.RandomAutocontrast(),
    "RandomEqualize": lambda m: m.RandomEqualize(),
    "GaussianBlur": lambda m: m.GaussianBlur((5, 3)),
    "RandAugment": lambda m: m.RandAugment(3, 11),
    "TrivialAugmentWide": lambda m: m.TrivialAugmentWide(),
    **{
        f"AutoAugment {policy}": lambda m, policy=policy: m.AutoAugment(m.AutoAugmentPolicy(policy))
        for policy in ("imagenet", "cifar10", "svhn")
    },
    "AugMix": lambda m: m.AugMix(),
    "AugMix of": lambda m: m.AugMix(9, 4, 2, 0.5, False, modes(m)["bicubic"], [3, 2, 1]),
    "RandomApply": lambda m: m.RandomApply([m.RandomInvert(1), m.RandomHorizontalFlip(1)], 0.5),
    "RandomChoice": lambda m: m.RandomChoice([m.RandomInvert(1), m.RandomPosterize(2, 1)]),
    "RandomOrder": lambda m: m.RandomOrder([m.RandomPosterize(4), m.RandomSolarize(60)]),
    "Compose in Compose": lambda m: m.Compose([m.Compose([m.RandomInvert()]), m.Pad(1)]),
}
TIMM = {
    "RandomResizedCropAndInterpolation": lambda t, a: t.RandomResizedCropAndInterpolation(
        16, interpolation="random"
    ),
    "RandomCropOrPad": lambda t, a: t.RandomCropOrPad((30, 20), (1, 2, 3)),
    "RandomCropOrPad reflect": lambda t, a: t.RandomCropOrPad((30, 20), padding_mode="reflect"),
    "CenterCropOrPad": lambda t, a: t.CenterCropOrPad((20, 40), 7),
    "RandomPad": lambda t, a: t.RandomPad((40, 40), (3, 2, 1)),
    "ResizeKeepRatio": lambda t, a: t.ResizeKeepRatio(
        20, random_scale_prob=0.5, random_aspect_prob=0.5
    ),
    "TrimBorder": lambda t, a: t.TrimBorder(3),
    **{
        name: lambda t, a, name=name: a.rand_augment_transform(name, HPARAMS)
        for name in (
            "rand-m9-mstd0.5-inc1",
            "rand-m7-n3-mstd0.5",
            "rand-m15-mmax20-p0.7",
            "rand-m9-t1-mstd101",
        )
    },
    **{
        name: lambda t, a, name=name: a.auto_augment_transform(name, HPARAMS)
        for name in ("original", "originalr-mstd0.5", "v0", "v0r-mstd0.5", "3a")
    },
    **{
        name: lambda t, a, name=name: a.augment_and_mix_transform(name, HPARAMS)
        for name in ("augmix-m5-w4-d2", "augmix-m5-w4-d2-b1", "augmix-w1-a0.2-mstd1")
    },
}
HPARAMS = {"translate_const": 10, "img_mean": (124, 116, 104)}
