"""The masks of a batch that goes to a device cross as they are stored, and get their dtype there."""

import pickle

import pytest
import torch
from followed import Files, Followed
from late_copies import LateDevice
from pictures import import_torchvision
from torch.utils.data import DataLoader, Dataset, default_collate
from torch.utils.data._utils.pin_memory import pin_memory
from ways import EMULATED

from fastloader import Companion, DevicePrefetcher, EncodedImage, EncodedMask, FastLoader
from fastloader import transforms as T
from fastloader._core.batch.tree import StoredMask
from fastloader._core.machine import devices
from support import MEAN, STD, same

import_torchvision()
v2 = pytest.importorskip("torchvision.transforms.v2")

COUNT, EDGE = 10, 24
DEVICES = ["twin"] if EMULATED else ["twin", "streams"]
CROP = T.Compose([T.RandomResizedCrop(EDGE, (0.1, 1)), T.RandomHorizontalFlip()])
RESIZED = T.Compose([T.Resize(12), T.RandomHorizontalFlip()])
CLASSES = {i: i // 2 for i in range(200)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return Files(tmp_path_factory.mktemp("stored"), COUNT, 7)


class Scenes(Dataset):
    """({"image", "mask", "wide"}, number), or a tuple in the place of the dict."""

    def __init__(self, files, transform=CROP, dtype=torch.int64, named=True):
        self.files, self.transform, self.dtype, self.named = files, transform, dtype, named

    def __len__(self):
        return self.files.count

    def __getitem__(self, i):
        with_ = {
            "mask": EncodedMask(self.files.of(i, "mask"), CLASSES, dtype=self.dtype),
            "wide": EncodedMask(self.files.of(i, "wide"), dtype=self.dtype, bits=16),
        }
        with_ = with_ if self.named else [*with_.values()]
        return EncodedImage(self.files.of(i), self.transform, with_=with_), i


class Alone(Scenes):
    def __getitem__(self, i):
        return super().__getitem__(i)[0]


class Parameters(Scenes):
    def __getitem__(self, i):
        image, number = super().__getitem__(i)
        return EncodedImage(image.source, self.transform, True, image.with_), number


_copy = torch.Tensor.copy_


class Eager(LateDevice):
    """Counts what crosses, and copies it at once."""

    def __init__(self):
        super().__init__()
        self.crossed = 0

    def _enqueue(self, target, source):
        _copy(target, source)
        self.crossed += source.nbytes


def epoch(dataset, **options):
    torch.manual_seed(3)
    loader = FastLoader(dataset, **{"batch_size": 4, "shuffle": True, **options})
    found = []
    for batch in loader:
        check_types(batch)
        found.append(batch)
    return loader, found


def check_types(value):
    assert type(value) is not StoredMask
    if isinstance(value, torch.Tensor):
        assert type(value) is torch.Tensor
    elif isinstance(value, dict):
        [*map(check_types, value.values())]
    elif isinstance(value, list | tuple):
        [*map(check_types, value)]


def crossed(enter_way, monkeypatch, name, dataset, **options):
    """The batches that a delivery brings to its device, and the bytes that it copies there."""
    enter_way(name)
    if name == "twin":
        loader, got = epoch(dataset, device="cpu", **options)
        return got, loader.stats()["ring"]["bytes"]
    with monkeypatch.context() as patch:
        device = Eager()
        device.install(patch)
        _, got = epoch(dataset, device="cpu", **options)
        return got, device.crossed


WAYS = {
    "native": {},
    "workers": {"num_workers": 2},
    "threads": {"num_workers": 2, "worker_backend": "thread"},
    "pillow": {"native": False},
    "pillow in workers": {"native": False, "num_workers": 2},
    "normalised": {"mean": MEAN, "std": STD},
    "normalised in workers": {"mean": MEAN, "std": STD, "num_workers": 2},
    "persistent workers": {"num_workers": 2, "persistent_workers": True},
    "no batches": {"batch_size": None, "shuffle": False},
    "a list": {"batch": "list"},
    "a list, in workers": {"batch": "list", "num_workers": 2},
    "padded": {"batch": "pad", "pad_to": 8},
    "padded in workers": {"batch": "pad", "pad_to": 8, "num_workers": 2},
    "padded and normalised": {"batch": "pad", "mean": MEAN, "std": STD},
    "packed": {"batch": "packed"},
    "packed by Pillow": {"batch": "packed", "native": False, "num_workers": 1},
}
DATASETS = {
    "a dict": Scenes,
    "a tuple": lambda files, **options: Scenes(files, named=False, **options),
    "alone": Alone,
    "with parameters": Parameters,
    "with parameters and sizes of their own": lambda files, **options: Parameters(
        files, RESIZED, **options
    ),
    "made by Python": lambda files, **options: Scenes(
        files,
        v2.Compose([v2.RandomResizedCrop(EDGE), v2.RandomRotation(20), v2.PILToTensor()]),
        **options,
    ),
}


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("way", WAYS)
def test_a_mask_crosses_as_it_is_stored(files, enter_way, monkeypatch, name, way):
    check(files, enter_way, monkeypatch, name, "a dict", WAYS[way])


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("way", ["native", "workers", "padded", "a list, in workers"])
@pytest.mark.parametrize("kind", ["a tuple", "alone", "with parameters", "made by Python"])
def test_wherever_a_mask_stands_it_crosses_so(files, enter_way, monkeypatch, name, way, kind):
    if kind == "with parameters" and "batch" in WAYS[way]:
        pytest.skip("a layout lays out nothing of such a pair")
    check(files, enter_way, monkeypatch, name, kind, WAYS[way])


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("size", [1, None])
def test_those_of_a_picture_without_a_size_cross_so(files, enter_way, monkeypatch, name, size):
    options = {"batch_size": size, "shuffle": False}
    kind = "with parameters and sizes of their own"
    check(files, enter_way, monkeypatch, name, kind, options)


def check(files, enter_way, monkeypatch, name, kind, options):
    """Compares with the CPU's batches, and with masks that have no dtype."""
    options = {**options, "num_workers": 0} if kind == "made by Python" else options
    dataset = DATASETS[kind](files)
    enter_way("cpu")
    _, wanted = epoch(dataset, **options)
    got, large = crossed(enter_way, monkeypatch, name, dataset, **options)
    as_stored, small = crossed(
        enter_way, monkeypatch, name, DATASETS[kind](files, dtype=None), **options
    )
    assert large == small
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5, equal_nan=True)
    masks, stored = masks_in(got), masks_in(as_stored)
    assert len(masks) == len(stored) >= 2
    for mask, indices in zip(masks, stored, strict=True):
        assert mask.dtype is torch.int64 and mask.is_contiguous()
        assert torch.equal(mask, indices.long())


def masks_in(value):
    """The tensors of indices: without pictures, numbers, parameters and what says where padding is."""
    if isinstance(value, torch.Tensor):
        return [value] if value.dim() > 1 and value.shape[-3:-2] != (3,) else []
    if isinstance(value, dict):
        if "hflip" in value:
            return []
        value = [each for key, each in value.items() if key != "image"]
    elif hasattr(value, "_fields") or not isinstance(value, list | tuple):  # Padded or Packed
        return []
    return [mask for each in value for mask in masks_in(each)]


@pytest.mark.parametrize("name", DEVICES)
def test_an_int64_mask_is_one_byte_a_pixel(files, enter_way, monkeypatch, name):
    """And one of 16 bits is two."""
    _, whole = crossed(enter_way, monkeypatch, name, Scenes(files), drop_last=True)
    _, alone = crossed(
        enter_way, monkeypatch, name, Followed(files, CROP, False, False), drop_last=True
    )
    # That has a second picture, and each has two batches of four.
    pixels = 2 * 4 * EDGE * EDGE
    assert whole - (alone - 3 * pixels) == (1 + 2) * pixels


TYPES = [
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.bool),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
]


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("options", [{}, {"batch": "pad"}], ids=str)
def test_every_dtype_is_what_the_cpu_makes(files, enter_way, name, dtype, options):
    dataset = Scenes(files, RESIZED if options else CROP, dtype)
    enter_way("cpu")
    _, wanted = epoch(dataset, **options)
    enter_way(name)
    _, got = epoch(dataset, device="cpu", **options)
    assert {batch[0][key].dtype for batch in got for key in ("mask", "wide")} == {dtype}
    same(got, wanted)


class OtherTypes(Scenes):
    """Masks of another dtype in each batch."""

    def __getitem__(self, i):
        self.dtype = (torch.int64, torch.int32, None)[i // 4]
        return super().__getitem__(i)


@pytest.mark.parametrize("name", DEVICES)
def test_batches_of_one_shape_and_several_dtypes(files, enter_way, name):
    options = {"shuffle": False, "sampler": [0, 1, 4, 5, 8, 9, 2, 3], "batch_size": 2}
    enter_way("cpu")
    _, wanted = epoch(OtherTypes(files), **options)
    assert len({batch[0]["wide"].dtype for batch in wanted}) == 3
    enter_way(name)
    same(epoch(OtherTypes(files), device="cpu", **options)[1], wanted)


@pytest.mark.parametrize("name", DEVICES)
def test_python_makes_masks_of_several_dtypes_as_on_the_cpu(files, enter_way, name):
    transform = v2.Compose([v2.Resize((EDGE, EDGE)), v2.ElasticTransform(9.0), v2.PILToTensor()])
    options = {"shuffle": False, "sampler": [4, 0, 3, 5]}
    enter_way("cpu")
    _, wanted = epoch(OtherTypes(files, transform), **options)
    enter_way(name)
    same(epoch(OtherTypes(files, transform), device="cpu", **options)[1], wanted)


class SeveralTypes(Dataset):
    """Masks of which each sample has another dtype, which a layout puts into one tensor."""

    def __init__(self, files, bits=8):
        self.files, self.bits = files, bits

    def __len__(self):
        return 4

    def __getitem__(self, i):
        dtype = (torch.int64, torch.int32, torch.float32, None)[i]
        mask = EncodedMask(self.files.of(i, "mask"), dtype=dtype, bits=self.bits if i % 2 else 8)
        return EncodedImage(self.files.of(i), RESIZED, with_={"mask": mask})


class SomeWithoutType(SeveralTypes):
    def __getitem__(self, i):
        dtype = None if i % 2 else torch.int64
        mask = EncodedMask(self.files.of(i, "mask"), dtype=dtype)
        return EncodedImage(self.files.of(i), RESIZED, with_={"mask": mask})


class SeveralBits(SeveralTypes):
    def __getitem__(self, i):
        what, bits = ("wide", 16) if i else ("mask", 8)
        mask = EncodedMask(self.files.of(i, what), dtype=torch.int64, bits=bits)
        return EncodedImage(self.files.of(i), RESIZED, with_={"mask": mask})


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("kind", [SeveralTypes, SomeWithoutType, SeveralBits])
@pytest.mark.parametrize("layout", ["pad", "list"])
def test_a_layout_of_several_types_is_the_cpus(files, enter_way, name, kind, layout):
    options = {"batch": layout, "shuffle": False}
    enter_way("cpu")
    _, wanted = epoch(kind(files), **options)
    enter_way(name)
    _, got = epoch(kind(files), device="cpu", **options)
    same(got, wanted)


# --- who gets finished tensors ----------------------------------------------------------------------


def seen_by_collate(samples):
    """The dtypes and types that a collate_fn sees, in the place of the batch."""
    masks = [sample[0][key] for sample in samples for key in ("mask", "wide")]
    assert {type(each) for each in masks} == {torch.Tensor}
    assert {each.dtype for each in masks} == {torch.int64}
    return default_collate(samples)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"native": False}], ids=str)
def test_a_collate_fn_gets_tensors_of_the_dtype(files, enter_way, name, options):
    enter_way(name)
    _, got = epoch(Scenes(files), device="cpu", collate_fn=seen_by_collate, **options)
    enter_way("cpu")
    same(got, epoch(Scenes(files))[1])


class Inside(Scenes):
    """The pair is further inside than a layout looks."""

    def __getitem__(self, i):
        image, number = super().__getitem__(i)
        return {"pair": {"first": image}, "number": number}


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("options", [{}, {"batch": "list"}, {"batch": "packed"}], ids=str)
def test_masks_further_inside(files, enter_way, name, options):
    enter_way("cpu")
    _, wanted = epoch(Inside(files), **options)
    enter_way(name)
    _, got = epoch(Inside(files), device="cpu", **options)
    same(got, wanted)


@pytest.mark.parametrize("options", [{}, {"batch": "list"}], ids=str)
def test_an_iterator_of_torchs_has_no_delivery(files, twin, options):
    """Its batches are as DataLoader's, also after an epoch that went to a device."""
    loader, _ = epoch(Scenes(files), device="cpu", **options)
    for batch in loader._get_iterator():
        check_types(batch)
        masks = masks_in(batch[0])
        assert len(masks) >= 2 and {mask.dtype for mask in masks} == {torch.int64}


def test_device_prefetcher_gets_what_a_loop_gets(files, twin):
    _, wanted = epoch(Scenes(files))
    torch.manual_seed(3)
    got = list(DevicePrefetcher(FastLoader(Scenes(files), 4, shuffle=True), "cpu"))
    same(got, wanted)
    torch.manual_seed(3)
    dtypes = {
        batch[0]["mask"].dtype for batch in DevicePrefetcher(DataLoader(Scenes(files), 4), "cpu")
    }
    assert dtypes == {torch.int64}


# --- what else happens to a batch -------------------------------------------------------------------


class Damaged(Scenes):
    def __getitem__(self, i):
        if i % 4 != 3:
            return super().__getitem__(i)
        mask = EncodedMask(b"no picture", dtype=self.dtype)
        wide = EncodedMask(self.files.of(i, "wide"), dtype=self.dtype, bits=16)
        return EncodedImage(self.files.of(i), self.transform, with_={"mask": mask, "wide": wide}), i


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("options", [{}, {"num_workers": 2}, {"batch": "pad"}], ids=str)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples(files, enter_way, name, options, on_error):
    options = {**options, "on_error": on_error}
    enter_way("cpu")
    _, wanted = epoch(Damaged(files), **options)
    enter_way(name)
    _, got = epoch(Damaged(files), device="cpu", **options)
    same(got, wanted)
    assert len(got) > 1


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("workers", [0, 2])
def test_the_rest_of_an_epoch_after_a_resume(files, enter_way, name, workers):
    enter_way(name)
    options = {"device": "cpu", "num_workers": workers}
    _, wanted = epoch(Scenes(files), **options)
    torch.manual_seed(3)
    loader = FastLoader(Scenes(files), 4, shuffle=True, **options)
    iterator = iter(loader)
    next(iterator)
    state, drawn = loader.state_dict(), torch.get_rng_state()
    del iterator
    again = FastLoader(Scenes(files), 4, shuffle=True, **options)
    again.load_state_dict(state)
    torch.set_rng_state(drawn)
    same(list(again), wanted[1:])


@pytest.mark.parametrize("name", DEVICES)
def test_the_loop_in_inference_mode_gets_ordinary_tensors(files, enter_way, name):
    enter_way(name)
    iterator = iter(FastLoader(Scenes(files), 4, device="cpu"))
    with torch.inference_mode():
        batch = next(iterator)
    assert not any(mask.is_inference() for mask in masks_in(batch))


def test_pinning_reaches_the_indices(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 1)
    (pinned,) = pin_memory([StoredMask.of(torch.zeros(2, dtype=torch.uint8), torch.int64)])
    assert type(pinned) is StoredMask and pinned.finished().tolist() == [1, 1]
    assert pinned.dtype is torch.int64


def test_they_can_be_pickled():
    """Also by plain pickle, which knows nothing of uint16."""
    indices = torch.tensor([0, 1, 65535], dtype=torch.uint16)
    made = pickle.loads(pickle.dumps(StoredMask.of(indices, torch.int32)))
    assert type(made) is StoredMask and made.shape == (3,) and made.bits.dtype is torch.int16
    finished = made.finished()
    assert finished.dtype is torch.int32 and finished.tolist() == [0, 1, 65535]


# --- whose the memory is ----------------------------------------------------------------------------


def test_the_engine_tells_of_all_memory_that_another_stream_reads(files, twin, monkeypatch):
    told = []
    monkeypatch.setattr(devices, "record_stream", lambda memory, device: told.append([*memory]))
    iterator = iter(FastLoader(Scenes(files), 3, device="cpu", num_workers=1))
    next(iterator)
    next(iterator)
    assert not told
    credits = iterator._epoch.credits
    credit = credits[iterator._epoch.next_seq]
    credit.stream, own = 5, credit.stream  # where its memory was made
    batch, _ = next(iterator)
    credit.stream = own
    kept = {each.data_ptr() for each in told[0]}
    assert {batch["mask"].data_ptr(), batch["wide"].data_ptr()} < kept
    assert {each.data_ptr() for each in credit.outputs} < kept
    stored = [each.dtype for each in credit.outputs]
    assert stored.count(torch.int16) == 1 and stored.count(torch.uint8) == 2


@pytest.mark.skipif(EMULATED, reason="torch's own streams")
def test_streams_make_masks_on_the_side_stream_from_memory_of_the_loops(
    files, enter_way, monkeypatch
):
    enter_way("streams")
    from fastloader._core.delivery import streams

    inside, fills = [], []
    begin = devices.StreamSide.begin

    class Side:
        def __init__(self, own):
            self._own = own

        def __enter__(self):
            inside.append(True)
            return self._own.__enter__()

        def __exit__(self, *error):
            inside.pop()
            return self._own.__exit__(*error)

    def fill(made, bits, of=streams.fill_mask):
        assert inside
        fills.append((made, bits))
        return of(made, bits)

    monkeypatch.setattr(devices.StreamSide, "begin", lambda side: Side(begin(side)))
    monkeypatch.setattr(streams, "fill_mask", fill)
    options = {"num_workers": 1, "worker_backend": "thread"}
    iterator = iter(FastLoader(Scenes(files), 4, device="cpu", **options))
    issue, flights = iterator._delivery.issue, []
    monkeypatch.setattr(
        iterator._delivery, "issue", lambda load: flights.append(issue(load)) or flights[-1]
    )
    batch, _ = next(iterator)
    (mask, bits), (wide, wide_bits), *_ = fills
    assert mask is batch["mask"] and wide is batch["wide"]
    assert (bits.dtype, wide_bits.dtype) == (torch.uint8, torch.int16)
    for memory in (mask, bits, wide, wide_bits):
        assert any(memory is each for each in flights[0].memory)
    assert not flights[0].moved


def test_a_companion_that_is_no_mask_is_never_stored(files, twin):
    class Pairs(Scenes):
        def __getitem__(self, i):
            return EncodedImage(self.files.of(i), CROP, with_=[Companion(self.files.of(i))])

    _, got = epoch(Pairs(files), device="cpu")
    assert {each.dtype for batch in got for each in batch} == {torch.uint8}


class LookedInto(Scenes):
    """Tells the sum of the mask that it has seen; every second sample is not looked into."""

    def __getitem__(self, i):
        image, _number = super().__getitem__(i)
        return image, int(image["mask"].sum()) if i % 2 else -1


@pytest.mark.parametrize("layout", [{}, {"batch": "list"}, {"batch": "pad"}], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_what_the_dataset_has_seen_crosses(files, enter_way, device, layout):
    loader = FastLoader(LookedInto(files), 4, **enter_way(device).options, **layout)
    seen = 0
    for parts, sums in loader:
        masks = parts["mask"]
        for mask, total in zip(masks, sums, strict=True):
            assert mask.dtype == torch.int64
            if total >= 0:
                assert int(mask.sum()) == int(total)
                seen += 1
    assert seen == COUNT // 2
