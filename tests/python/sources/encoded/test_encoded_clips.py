"""Clips whose frames stay encoded until the loader's threads make them, under one draw or one each."""

import pickle
import random
import re

import numpy as np
import pytest
import torch
from pictures import import_torchvision, save_jpeg
from PIL import Image
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from fastloader import EncodedClip, EncodedImage, FastLoader
from fastloader import transforms as T
from support import same

pytestmark = pytest.mark.covering

FRAMES = 4
MOVED = T.Compose(
    [T.RandomResizedCrop(32), T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1)]
)
ERASED = T.Compose(
    [
        T.RandomResizedCrop(32),
        T.ToTensor(),
        T.Normalize((0.5,) * 3, (0.2,) * 3),
        T.RandomErasing(1.0),
    ]
)


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """Six clips, each of another size."""
    root, rng = tmp_path_factory.mktemp("clips"), random.Random(5)
    found = []
    for clip in range(6):
        width, height = rng.randint(40, 90), rng.randint(40, 90)
        paths = [str(root / f"{clip}_{frame}.jpg") for frame in range(FRAMES)]
        for path in paths:
            save_jpeg(rng, path, width, height)
        found.append(paths)
    return found


class Clips(Dataset):
    """A clip, and a picture after it, whose draws are its own."""

    def __init__(self, clips, transform, shared=True):
        self.clips, self.transform, self.shared = clips, transform, shared

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, index):
        frames = self.clips[index]
        clip = EncodedClip(frames, self.transform, shared=self.shared)
        return {"clip": clip, "still": EncodedImage(frames[0], self.transform), "index": index}


def own(samples):
    return default_collate(samples)


def as_they_are(samples):
    return samples


def batches_of(dataset, **options):
    torch.manual_seed(3)
    loader = FastLoader(dataset, **{"batch_size": 4, **options})
    return loader, list(loader)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("transform", [MOVED, ERASED], ids=["moved", "erased"])
def test_every_way_makes_the_same_clips(clips, transform, shared, way):
    dataset = Clips(clips, transform, shared)
    _, wanted = batches_of(dataset, native=False)
    assert wanted[0]["clip"].shape == (4, FRAMES, 3, 32, 32)
    for options in (
        {},
        {"num_workers": 2},
        {"num_workers": 2, "worker_backend": "thread"},
        {"collate_fn": own},
        {"collate_fn": own, "num_workers": 2},
    ):
        _, got = batches_of(dataset, **way.options, **options)
        for ours, theirs in zip(got, wanted, strict=True):
            same(ours, theirs)


@pytest.mark.parametrize("shared", [True, False])
def test_frames_are_what_the_replayed_steps_make(clips, shared):
    loader, (first, _) = batches_of(Clips(clips, MOVED, shared))
    for index in range(4):
        replayed = loader.replay(index)
        assert len(replayed) == (2 if shared else FRAMES + 1)
        for frame, path in enumerate(clips[index]):
            drawn = replayed[0 if shared else frame]
            made = T.apply(Image.open(path).convert("RGB"), drawn["steps"])
            pixels = torch.from_numpy(np.array(made)).permute(2, 0, 1)
            assert torch.equal(first["clip"][index, frame], pixels)
        if not shared:
            assert len({str(each["steps"]) for each in replayed}) == len(replayed)


def test_clips_of_sizes_of_their_own_are_laid_out(clips):
    halved = T.Compose([T.Resize(24), T.RandomHorizontalFlip()])
    _, got = batches_of(Clips(clips, halved), batch="list", num_workers=2)
    _, wanted = batches_of(Clips(clips, halved), batch="list", native=False)
    shapes = [tuple(clip.shape) for batch in got for clip in batch["clip"]]
    assert all(shape[:2] == (FRAMES, 3) and min(shape[2:]) == 24 for shape in shapes)
    assert len(set(shapes)) > 1
    same(got, wanted)


def test_another_loader_and_decode_give_the_clip(clips):
    clip = EncodedClip(clips[0], MOVED)
    torch.manual_seed(1)
    wanted = clip.decode()
    torch.manual_seed(1)
    assert torch.equal(pickle.loads(pickle.dumps(clip)).decode(), wanted)
    assert wanted.shape == (FRAMES, 3, 32, 32)
    (batch,) = DataLoader([clip, clip], batch_size=2)
    assert batch.shape == (2, FRAMES, 3, 32, 32)
    assert clip.frames == clips[0]
    assert repr(clip).startswith(f"EncodedClip({FRAMES} frames from '{clips[0][0]}'")


def test_one_draw_is_for_all_frames(clips):
    """The same picture, four times."""
    same_frame = [clips[0][0]] * FRAMES

    class Still(Dataset):
        def __init__(self, shared):
            self.shared = shared

        def __len__(self):
            return 3

        def __getitem__(self, index):
            return EncodedClip(same_frame, MOVED, shared=self.shared)

    for shared in (True, False):
        _, (batch,) = batches_of(Still(shared))
        frames = [len({frame.numpy().tobytes() for frame in clip}) for clip in batch]
        assert frames == [1 if shared else FRAMES] * 3


def test_a_transform_that_is_not_native_draws_once_if_it_is_torchvisions(clips):
    import_torchvision()
    from torchvision.transforms import v2

    turned = v2.Compose([v2.Resize((40, 40)), v2.ElasticTransform(20.0), v2.PILToTensor()])
    clip = EncodedClip(clips[0], turned)
    torch.manual_seed(4)
    made = clip.decode()
    torch.manual_seed(4)
    wanted = turned([Image.open(path).convert("RGB") for path in clips[0]])
    assert torch.equal(made, torch.stack(list(wanted)))
    _, (batch,) = batches_of([clip, clip])
    assert batch.shape == (2, FRAMES, 3, 40, 40)
    says = "^an EncodedClip without shared=False needs a transform that is native to the end"
    with pytest.raises(TypeError, match=says):
        EncodedClip(clips[0], lambda picture: picture).decode()
    each = EncodedClip(clips[0], lambda picture: torch.tensor(picture.size), shared=False)
    assert each.decode().shape == (FRAMES, 2)


def test_bad_clips_are_refused_by_name(clips, tmp_path):
    with pytest.raises(ValueError, match="a clip of 0 frames; 1 to 1024 are allowed"):
        EncodedClip([], MOVED)
    for frames in (clips[0][0], None, {0: clips[0][0]}, set(clips[0])):
        with pytest.raises(TypeError, match="frames is a sequence of paths"):
            EncodedClip(frames, MOVED)
    one, short = EncodedClip(clips[0], MOVED), EncodedClip(clips[0][:2], MOVED)
    apart = EncodedClip(clips[0], MOVED, shared=False)
    for other in (short, apart):  # the message has the two that differ
        with pytest.raises(TypeError, match="several lengths, or are not all shared") as caught:
            batches_of([one, one, other])
        assert str(caught.value).endswith(f"{one} and {other}")
    mixed = EncodedClip([clips[0][0], clips[1][0]], MOVED)
    for options in ({}, {"collate_fn": own}, {"native": False}):
        with pytest.raises(
            ValueError, match=r"sample 0, .*another size than the first of its clip"
        ):
            batches_of([mixed], batch_size=1, **options)
    v2 = pytest.importorskip("torchvision.transforms.v2")
    jointly = v2.Compose([v2.Lambda(lambda frame: frame), v2.Resize((9, 9))])
    for clip in (mixed, EncodedClip(mixed.frames, jointly)):
        says = f"^{re.escape(clips[1][0])}: a frame of another size than the first of its clip"
        with pytest.raises(ValueError, match=says):
            clip.decode()


@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 2}, {"collate_fn": own}], ids=["default", "workers", "own"]
)
@pytest.mark.parametrize("wrong", ["damaged", "of another size"])
def test_a_clip_with_a_bad_frame_is_skipped_or_replaced(clips, tmp_path, options, wrong):
    bad = clips[1][0]
    if wrong == "damaged":
        bad = str(tmp_path / "bad.jpg")
        (tmp_path / "bad.jpg").write_bytes(b"\xff\xd8\xff but no JPEG")
    broken = [*clips[:2], [*clips[2][:-1], bad], *clips[3:]]
    loader, got = batches_of(Clips(broken, MOVED), batch_size=6, on_error="skip", **options)
    _, (whole,) = batches_of(Clips(clips, MOVED), batch_size=6)
    kept = [0, 1, 3, 4, 5]
    assert got[0]["index"].tolist() == kept
    assert torch.equal(got[0]["clip"], whole["clip"][kept])
    loader, got = batches_of(Clips(broken, MOVED), batch_size=6, on_error="replace", **options)
    assert got[0]["clip"].shape == whole["clip"].shape
    assert torch.equal(got[0]["clip"][kept], whole["clip"][kept])
    assert loader.stats()["pictures"]["bad"] == 1


def test_an_iterable_dataset_gives_clips(clips):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([EncodedClip(frames, MOVED) for frames in clips])

    _, got = batches_of(Stream(), num_workers=1)
    _, wanted = batches_of(Stream(), num_workers=1, native=False)
    assert [len(batch) for batch in got] == [4, 2]
    same(got, wanted)


def test_one_sample_without_a_batch(clips):
    _, got = batches_of(Clips(clips, MOVED), batch_size=None)
    assert got[0]["clip"].shape == (FRAMES, 3, 32, 32)
    _, wanted = batches_of(Clips(clips, MOVED), batch_size=None, native=False)
    same(got, wanted)


@pytest.mark.parametrize("shared", [True, False])
def test_what_is_erased_is_replayed_for_each_frame(clips, shared):
    loader, (first, _) = batches_of(Clips(clips, ERASED, shared))
    for index in range(4):
        boxes = set()
        for frame in range(FRAMES):
            name, box = loader.replay(index)[0 if shared else frame]["steps"][-1]
            assert name == "erase"
            left, top = box["left"], box["top"]
            rows, columns = slice(top, top + box["height"]), slice(left, left + box["width"])
            assert not first["clip"][index, frame, :, rows, columns].any()
            boxes.add((left, top, box["height"], box["width"]))
        assert len(boxes) == 1 if shared else len(boxes) > 1


@pytest.mark.parametrize("options", [{}, {"num_workers": 1}, {"native": False}])
@pytest.mark.parametrize("kind", [EncodedImage, EncodedClip])
def test_a_class_that_derives_from_ours_is_refused_by_name(clips, kind, options):
    derived = type("Mine", (kind,), {})
    samples = [derived(clips[0] if kind is EncodedClip else clips[0][0], MOVED)] * 2
    with pytest.raises(TypeError, match=f"holds a Mine, which derives from {kind.__name__}: "):
        batches_of(samples, **options)


def test_a_sample_with_several_bad_files_is_counted_once(clips, tmp_path):
    bad = [str(tmp_path / f"{number}.jpg") for number in range(FRAMES)]
    broken = [*clips[:2], bad, *clips[3:]]
    for options in ({}, {"native": False}, {"collate_fn": own}, {"num_workers": 1}):
        for on_error, kept in (("skip", 5), ("replace", 6)):
            bounded = {"on_error": on_error, "max_errors": 1, "batch_size": 6}
            loader, (batch,) = batches_of(Clips(broken, MOVED), **bounded, **options)
            assert len(batch["index"]) == kept
            pictures = loader.stats()["pictures"]
            assert pictures["bad"] == len(pictures["last_bad"]) == 1


@pytest.mark.parametrize("shared", [True, False])
def test_a_function_gets_clips_of_several_lengths_by_their_own_draws(clips, shared):
    class Lengths(Clips):
        def __getitem__(self, index):
            sample = super().__getitem__(index)
            frames = self.clips[index][: 1 + index % 3]
            other = self.clips[0][0] if index % 2 else self.clips[0][:2]
            kind = EncodedImage if index % 2 else EncodedClip
            sample["clip"] = EncodedClip(frames, self.transform, shared=self.shared)
            return {**sample, "either": kind(other, self.transform)}

    dataset = Lengths(clips, MOVED, shared)
    loader, wanted = batches_of(dataset, collate_fn=as_they_are, num_workers=2)
    # Of a sample that is alone in its batch: the others' lengths move no draw.
    _, alone = batches_of(dataset, collate_fn=as_they_are, batch_size=1)
    same([batch[0] for batch in alone], [*wanted[0], *wanted[1]])
    assert loader.plan().count("made natively in the worker processes") == 3
    assert "made by Python" not in loader.plan()
    replayed = loader.replay(2)
    assert len(replayed) == (3 if shared else 5)
    made = T.apply(Image.open(clips[2][0]).convert("RGB"), replayed[0]["steps"])
    pixels = torch.from_numpy(np.array(made)).permute(2, 0, 1)
    assert torch.equal(wanted[0][2]["clip"][0], pixels)
    _, fast = batches_of(dataset, collate_fn=as_they_are, decode="fast")
    assert [len(each["clip"]) for batch in fast for each in batch] == [1, 2, 3, 1, 2, 3]
