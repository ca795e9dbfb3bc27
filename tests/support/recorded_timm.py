"""What timm's policies do to a picture, as the operations of recipes: timm runs on a picture that only
notes what is done to it."""

import types

RESAMPLE, FILL = "resample", "fillcolor"


class Notes:
    """A picture that is none. Every operation gives it back."""

    mode = "RGB"

    def __init__(self, size):
        self.size = size  # width, height
        self.done = []

    def note(self, name, *numbers):
        self.done.append((name, [float(number) for number in numbers]))
        return self

    def transform(self, size, method, coefficients, **options):
        assert size == self.size and int(method) == 0
        return self.note("affine", *coefficients, options[RESAMPLE], *options[FILL])

    def rotate(self, degrees, **options):
        return self.note("rotate", degrees, options[RESAMPLE], 0, *options[FILL])

    def point(self, table):  # which only solarize_add makes itself
        return self.note("solarize_add", table[0], 128)

    def filter(self, radius):
        return self.note("pillow_blur", radius, radius)


class _Enhancer:
    def __init__(self, name):
        self.name = name

    def __call__(self, picture):
        def enhance(factor):
            return picture.note(self.name, factor)

        return types.SimpleNamespace(enhance=enhance)


def record(monkeypatch, policies):
    """Puts notes in the place of Pillow in timm's module of policies."""
    monkeypatch.setattr(
        policies,
        "ImageOps",
        types.SimpleNamespace(
            autocontrast=lambda picture: picture.note("autocontrast"),
            invert=lambda picture: picture.note("invert"),
            equalize=lambda picture: picture.note("equalize"),
            solarize=lambda picture, threshold: picture.note("solarize", threshold),
            # Less than 0 bits are black as well, before Pillow 13, which refuses less than 1.
            posterize=lambda picture, bits: picture.note("posterize", max(0, bits)),
        ),
    )
    names = {"Contrast": "contrast", "Color": "saturation", "Brightness": "brightness"}
    names["Sharpness"] = "sharpness"
    enhancers = {name: _Enhancer(ours) for name, ours in names.items()}
    monkeypatch.setattr(policies, "ImageEnhance", types.SimpleNamespace(**enhancers))
    blur = types.SimpleNamespace(GaussianBlur=lambda radius: radius)
    monkeypatch.setattr(policies, "ImageFilter", blur)


def done(transform, size):
    """The operations that one call of timm's ``transform`` does to a picture of (width, height)."""
    picture = Notes(size)
    transform(picture)
    return picture.done
