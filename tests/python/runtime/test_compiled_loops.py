"""Loops inside of torch.compile, which must leave the loader alone and whatever that calls."""

import pytest
from pictures import plain_folder

from support import run_script

LOOPS = """
    import sys
    import torch
    from torch.utils.data import Dataset, TensorDataset
    from fastloader import DevicePrefetcher, EncodedImage, FastLoader, decode_image
    from fastloader.datasets import ImageFolder
    from fastloader.transforms import Resize

    root = sys.argv[1]
    folder = ImageFolder(root, Resize((16, 16)))

    class Encoded(Dataset):
        def __len__(self):
            return len(folder)

        def __getitem__(self, index):
            return EncodedImage(folder.samples[index][0], Resize((16, 16))), index

    class Decoded(Encoded):
        def __getitem__(self, index):
            return decode_image(folder.samples[index][0], size=(16, 16), as_tensor=True), index

    def total(batches):
        summed = torch.zeros(())
        for images, *_ in batches:
            summed = summed + images.float().sum()
        return summed

    normalised = dict(mean=(0.5,) * 3, std=(0.5,) * 3)
    for dataset, options in (
        (folder, {}),
        (folder, normalised),
        (Encoded(), {"num_workers": 2}),
        (Encoded(), {"num_workers": 2, "worker_backend": "thread", **normalised}),
        (Decoded(), {}),
        (TensorDataset(torch.arange(6.0)), {}),
    ):
        loader = FastLoader(dataset, batch_size=2, **options)
        wanted = total(loader)
        torch._dynamo.reset()
        assert torch.equal(torch.compile(total, backend="eager")(loader), wanted)
        loader.close()
    torch._dynamo.reset()
    prefetcher = DevicePrefetcher(FastLoader(folder, batch_size=2))
    assert torch.equal(torch.compile(total, backend="eager")(prefetcher), total(prefetcher))
    print("equal")
"""


@pytest.mark.processes
@pytest.mark.parametrize("backend", ["", "host", "torch"])
def test_the_batches_are_the_same(tmp_path, backend):
    plain_folder(tmp_path, 6)
    env = {"FASTLOADER_BACKEND": backend} if backend else {}
    done = run_script(LOOPS, tmp_path, env=env, timeout=300, fresh=True)
    assert "equal" in done.stdout
