"""Pictures that a plot was drawn into."""

import numpy as np
from PIL import Image


def assert_is_a_plot(path):
    with Image.open(path) as file:
        file.load()
        assert file.format == "PNG" and file.width >= 800 and file.height >= 250
        assert np.asarray(file.convert("L")).std() > 5, "an empty figure"
