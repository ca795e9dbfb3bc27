"""Batches of any nesting arrive as they left: containers, types, strides, each leaf on its own."""

import collections
import dataclasses
from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

import pytest
import torch
from torch.nn.utils.rnn import PackedSequence, pack_sequence

from exact import normalised, same_bits
from fastloader import DevicePrefetcher, FastLoader
from support import MEAN, STD, Pictures, random_images, same

pytestmark = pytest.mark.covering

IMAGES = random_images(31, 4, 3, 5, 7)


def images():
    return IMAGES.clone()


def target():
    return torch.arange(4)


def deliver(batch, **options):
    return deliver_raw(batch, **{"mean": MEAN, "std": STD, **options})


def deliver_raw(batch, **options):
    with DevicePrefetcher([batch], "cpu", **options) as delivery:
        (out,) = list(delivery)
    return out


def check_image(out):
    same_bits(out, normalised(IMAGES, MEAN, STD, torch.float32))


class Point(NamedTuple):
    image: Any
    label: Any


@dataclasses.dataclass
class Record:
    image: Any
    label: Any
    name: str = "x"


@dataclasses.dataclass(frozen=True)
class Frozen:
    image: Any
    label: Any


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    image: Any
    label: Any


class ReadOnly(Mapping):
    def __init__(self, items):
        self._items = dict(items)

    def __getitem__(self, key):
        return self._items[key]

    def __iter__(self):
        return iter(self._items)

    def __len__(self):
        return len(self._items)


class Writable(ReadOnly, MutableMapping):
    def __setitem__(self, key, value):
        self._items[key] = value

    def __delitem__(self, key):
        del self._items[key]


class Listed(list):
    pass


class Tupled(tuple):
    pass


def default_dict(image, label):
    made = collections.defaultdict(list)
    made.update(image=image, label=label)
    return made


class Attributes(dict):
    """Whose items are its attributes, as in many a script."""

    def __init__(self, *args, **named):
        super().__init__(*args, **named)
        self.__dict__ = self


def model_output(image, label):
    modeling_outputs = pytest.importorskip("transformers.modeling_outputs")
    return modeling_outputs.TokenClassifierOutput(loss=label, logits=image)


def by_index(batch):
    return batch[0], batch[1]


def by_key(batch):
    return batch["image"], batch["label"]


def by_field(batch):
    return batch.image, batch.label


def by_both(batch):
    assert batch.image is batch["image"] and batch.label is batch["label"]
    return batch.image, batch.label


def by_output(batch):
    assert batch.loss is batch["loss"] and batch.logits is batch[1] and batch.attentions is None
    return batch.logits, batch.loss


def keyed(kind):
    return lambda image, label: kind([("image", image), ("label", label)])


CONTAINERS = {
    "tuple": (lambda i, t: (i, t), by_index, 0),
    "list": (lambda i, t: [i, t], by_index, 0),
    "tuple subclass": (lambda i, t: Tupled((i, t)), by_index, 0),
    "list subclass": (lambda i, t: Listed([i, t]), by_index, 0),
    "dict": (lambda i, t: {"image": i, "label": t}, by_key, "image"),
    "OrderedDict": (keyed(collections.OrderedDict), by_key, "image"),
    "defaultdict": (default_dict, by_key, "image"),
    "Counter": (lambda i, t: collections.Counter(image=i, label=t), by_key, "image"),
    "dict with attributes": (keyed(Attributes), by_both, "image"),
    "ModelOutput": (model_output, by_output, "logits"),
    "UserList": (lambda i, t: collections.UserList([i, t]), by_index, 0),
    "UserDict": (keyed(collections.UserDict), by_key, "image"),
    "Mapping": (keyed(ReadOnly), by_key, "image"),
    "MutableMapping": (keyed(Writable), by_key, "image"),
    "namedtuple": (Point, by_field, 0),
    "dataclass": (Record, by_field, "image"),
    "frozen dataclass": (Frozen, by_field, "image"),
    "slotted dataclass": (Slotted, by_field, "image"),
    "nested": (lambda i, t: {"x": [Point(i, t), None]}, lambda b: b["x"][0], "x"),
}


@pytest.mark.parametrize("name", CONTAINERS)
@pytest.mark.parametrize("with_key", [False, True])
def test_containers(way, name, with_key):
    make, look, key = CONTAINERS[name]
    given_image, given_target = images(), target()
    batch = make(given_image, given_target)
    out = deliver(batch, image_key=key if with_key else None)
    assert type(out) is type(batch)
    image, label = look(out)
    check_image(image)
    same(label, target())
    # The batch that went in is untouched: it may be a list that somebody keeps.
    assert look(batch)[0] is given_image and look(batch)[1] is given_target
    assert torch.equal(given_image, IMAGES)


def test_what_a_container_holds_besides_its_items_stays(way):
    batch = Listed([images(), target()])
    batch.note = "kept"
    assert deliver(batch).note == "kept"
    assert deliver(default_dict(images(), target())).default_factory is list
    assert deliver(Record(images(), target(), "y")).name == "y"


def test_a_bare_tensor(way):
    check_image(deliver(images()))


def test_what_is_not_a_tensor_travels_as_it_is(way):
    thing = object()
    rest = ["text", b"bytes", None, 3, 2.5, True, 1j, thing, {"deep": ("er", [4])}, (), [], {}]
    out = deliver((images(), rest))
    same(out[1], rest)
    assert out[1][7] is thing


def leaves():
    yield "0-dim", torch.tensor(3.5)
    yield "empty", torch.empty(0)
    yield "empty 2-dim", torch.empty(0, 5, dtype=torch.int16)
    for dtype in (
        torch.bool,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.uint8,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.complex64,
        torch.complex128,
    ):
        yield str(dtype), (torch.rand(3, 4) * 2).to(dtype)
    yield "odd bytes", torch.arange(13, dtype=torch.uint8)
    yield "transposed", torch.arange(12).reshape(3, 4).t()
    yield "sliced", torch.arange(20).reshape(4, 5)[:, ::2]
    yield "expanded", torch.arange(3).reshape(3, 1).expand(3, 4)
    yield "one column", torch.arange(12).reshape(3, 4)[:, :1]
    yield "channels_last", torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    yield "offset", torch.arange(10)[3:]
    yield "permuted", torch.rand(2, 3, 4).permute(2, 0, 1)


@pytest.mark.parametrize("with_images", [False, True])
def test_leaves_arrive_equal_with_the_strides_that_to_gives(way, with_images):
    for name, leaf in leaves():
        print(name)
        if with_images:
            (_, out) = deliver((images(), leaf))
        else:
            out = deliver_raw(leaf)
        same(out, leaf)
        if way.path == "engine":  # on the CPU they are the user's own tensors
            assert out.stride() == torch.empty_like(leaf).stride(), name
            if leaf.numel():
                assert out.data_ptr() != leaf.data_ptr()


def test_a_batch_may_lie_otherwise_than_the_one_before(way):
    """Of the same shapes and dtypes, in every order: nothing is kept of how the last one lay."""
    plain = torch.arange(12).reshape(3, 4)
    turned = torch.arange(12).reshape(4, 3).t()
    pictures = torch.rand(2, 3, 4, 5)
    last = pictures.to(memory_format=torch.channels_last)
    batches = [(plain, pictures), (turned, last), (plain, last), (turned, pictures)] * 2
    for with_images in (False, True):
        given = [(images(), *batch) if with_images else batch for batch in batches]
        options = {"mean": MEAN, "std": STD} if with_images else {}
        with DevicePrefetcher(given, "cpu", **options) as delivery:
            delivered = [batch[-2:] for batch in delivery]
        for got, wanted in zip(delivered, batches, strict=True):
            for out, leaf in zip(got, wanted, strict=True):
                same(out, leaf)
                if way.path == "engine":
                    assert out.stride() == leaf.stride()


def test_negative_and_conjugate_views(way):
    conjugate = torch.rand(3, dtype=torch.complex64).conj()
    negative = torch.rand(3, dtype=torch.complex64).conj().imag
    out = deliver((images(), conjugate, negative))
    assert torch.equal(out[1], conjugate) and torch.equal(out[2], negative)


class Tagged(torch.Tensor):
    pass


def test_tensor_subclass(way):
    tagged = torch.arange(4.0).as_subclass(Tagged)
    out = deliver((images(), tagged))[1]
    assert type(out) is Tagged and torch.equal(out, tagged)


def test_parameter_and_requires_grad(way):
    needs = torch.rand(3, requires_grad=True)
    out = deliver((images(), needs, torch.nn.Parameter(torch.rand(2))))
    assert out[1].requires_grad and torch.equal(out[1], needs)
    assert type(out[2]) is torch.nn.Parameter


def test_sparse(way):
    sparse = torch.eye(3).to_sparse()
    out = deliver((images(), sparse))[1]
    assert out.layout == torch.sparse_coo and torch.equal(out.to_dense(), torch.eye(3))


def test_packed_sequence(way):
    packed = pack_sequence([torch.arange(3.0), torch.arange(2.0)])
    out = deliver((images(), packed))[1]
    assert type(out) is PackedSequence and torch.equal(out.data, packed.data)
    assert torch.equal(out.batch_sizes, packed.batch_sizes)


class Moves:
    def __init__(self):
        self.went_to = []

    def to(self, device, **_):
        self.went_to.append(torch.device(device))
        return self


def test_objects_with_their_own_to(way):
    moves = Moves()
    assert deliver((images(), moves))[1] is moves
    assert moves.went_to == ([] if way.path == "cpu" else [way.target])


def test_every_leaf_has_a_storage_of_its_own(way):
    """One view of a common base would share a version counter and keep the whole batch alive."""
    image, label, extra = deliver((images(), target(), torch.rand(3)))
    storages = {each.untyped_storage().data_ptr() for each in (image, label, extra)}
    assert len(storages) == 3
    for each in (image, label, extra):
        assert each._base is None and each.storage_offset() == 0
    version = label._version
    image.mul_(2)
    assert label._version == version
    assert label.untyped_storage().nbytes() == label.numel() * label.element_size()
    label.add_(1).sum()
    loss = (image.requires_grad_() * label.reshape(4, 1, 1, 1)).sum()
    loss.backward()
    assert image.grad is not None


def test_image_key_picks_one_of_two(way):
    batch = {"x": images(), "mask": random_images(32, 4, 3, 5, 7)}
    out = deliver(batch, image_key="x")
    check_image(out["x"])
    same(out["mask"], batch["mask"])
    out = deliver([batch["mask"], images()], image_key=1)
    check_image(out[1])
    same(out[0], batch["mask"])


def test_image_key_reaches_below_the_outermost_container(way):
    inside = {"views": [images(), images()], "other": random_images(33, 4, 3, 5, 7)}
    out = deliver(inside, image_key="views")
    check_image(out["views"][0])
    check_image(out["views"][1])
    same(out["other"], inside["other"])


def test_same_tensor_twice(way):
    image = images()
    one, two = deliver((image, image))
    check_image(one)
    one.zero_()
    check_image(two)


def test_without_normalising_images_arrive_as_they_are(way):
    out = deliver_raw((images(), target()))
    same(out, (images(), target()))


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_of_changing_structure(way, workers):
    def collate(samples):
        index = samples[0][1]
        pixels = torch.stack([image for image, _ in samples])[:, :, : 2 + index % 3]
        label = torch.tensor([each for _, each in samples])
        return [(pixels, label), {"image": pixels, "label": label}, [pixels, None, label]][
            index % 3
        ]

    data = Pictures(12)
    loader = FastLoader(
        data, num_workers=workers, collate_fn=collate, mean=MEAN, std=STD, **way.options
    )
    for _ in range(2):
        for index, batch in enumerate(loader):
            wanted = collate([data[index]])
            assert type(batch) is type(wanted)
            tensors = list(batch.values()) if isinstance(batch, dict) else list(batch)
            pixels = data.images[index : index + 1, :, : 2 + index % 3]
            same_bits(tensors[0], normalised(pixels, MEAN, STD, torch.float32))
            assert tensors[-1].tolist() == [index]
