"""``compat.accelerate`` on two processes, over gloo: beside Accelerate's own prepared loaders, which
samples each process gets, what is gathered, and going on from a state. One launch runs all parts."""

import pytest
from pictures import plain_folder
from torchrun import torchrun

pytestmark = pytest.mark.processes

pytest.importorskip("accelerate")

PRELUDE = """
    import copy
    import importlib.util
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState, GradientState
    from accelerate.utils import DataLoaderConfiguration
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler
    from fastloader.compat.accelerate import prepare, skip_first_batches
    from support import Stream

    class Numbers(torch.utils.data.Dataset):
        def __init__(self, count):
            self.count, self.read = count, []
        def __len__(self):
            return self.count
        def __getitem__(self, index):
            self.read.append(index)
            return torch.zeros(1), index

    def make_accelerator(**settings):
        AcceleratorState._reset_state()
        GradientState._reset_state()
        return Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(**settings))

    def observed(accelerator, loader, epochs=2):
        seen = []
        for _ in range(epochs):
            for batch in loader:
                state = accelerator.gradient_state
                gathered = accelerator.gather_for_metrics(batch[1]) if EVEN else batch[1]
                account = [state.end_of_dataloader, state.remainder]
                seen.append([batch[1].tolist(), gathered.tolist(), account])
            seen.append([loader.iteration, len(loader) if SIZED else None])
        return seen
"""

# Settings of Accelerate, options of the loader, whether the dataset is iterable.
CASES = {
    "by default": ({}, {}, False),
    "shuffled": ({}, {"shuffle": True}, False),
    "seedable": ({"use_seedable_sampler": True, "data_seed": 7}, {"shuffle": True}, False),
    "uneven": ({"even_batches": False}, {"shuffle": True}, False),
    "dropped": ({}, {"shuffle": True, "drop_last": True}, False),
    "split": ({"split_batches": True}, {"shuffle": True}, False),
    "split, uneven": ({"split_batches": True, "even_batches": False}, {}, False),
    "workers": ({}, {"shuffle": True, "num_workers": 2}, False),
    "dispatched": ({"dispatch_batches": True}, {"shuffle": True}, False),
    "dispatched, split": ({"dispatch_batches": True, "split_batches": True}, {}, False),
    "dispatched, dropped": ({"dispatch_batches": True}, {"drop_last": True}, False),
    "iterable": ({}, {}, True),
    "iterable, not dispatched": ({"dispatch_batches": False}, {}, True),
    "iterable, split": ({"dispatch_batches": False, "split_batches": True}, {}, True),
}

STATES = ["shuffled", "seedable", "uneven", "split", "dispatched", "dispatched, split"]
STATES += ["iterable", "iterable, not dispatched"]

# Beside Accelerate. The ranks' own generators differ: Accelerate synchronises what the order comes from.
SAMPLES = """
    seen = {}
    for name, (settings, options, iterable) in ARGUMENT["cases"].items():
        accelerator = make_accelerator(**settings)
        SIZED, EVEN = not iterable, settings.get("even_batches", True)
        both = []
        for kind in (DataLoader, FastLoader):
            torch.manual_seed(RANK)
            loader = kind(Stream(21) if iterable else Numbers(21), 4, **options)
            make = accelerator.prepare if kind is DataLoader else lambda x: prepare(x, accelerator)
            both.append([observed(accelerator, make(loader)), torch.get_rng_state().tolist()])
        assert both[0] == both[1], (name, both[0][0], both[1][0])
        seen[name] = both[1][0]
"""

# By save_state and load_state where torchdata is there, which the setting needs. All ranks write one
# file. The generators of the ranks differ.
GOING_ON = """
    stateful = importlib.util.find_spec("torchdata") is not None
    states = {}
    for name, (settings, options, iterable) in ARGUMENT["states"].items():
        accelerator = make_accelerator(**settings, use_stateful_dataloader=stateful)

        def make(seed):
            torch.manual_seed(seed)
            # Accelerate fills up the last step of what it dispatches with samples of the pass's first
            # step, which is another one after a resume. So there is nothing to fill up.
            count = 42 if iterable or "dispatch_batches" in settings else 41
            loader = FastLoader(Stream(count) if iterable else Numbers(count), 4, **options)
            made = prepare(loader, accelerator)
            made.state_dict()
            return made

        loader = make(RANK)
        list(loader)
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = states[name] = loader.state_dict()
        assert loader.received(state) == 2
        place = f"{ARGUMENT['folder']}/{name}"
        accelerator.save_state(place)
        dist.barrier()
        wanted = [keys(iterator), keys(loader), keys(loader)]
        accelerator.free_memory()
        again = make(10 + RANK)
        if stateful:
            accelerator.load_state(place)
        else:
            again.load_state_dict(state)
        got = [keys(again), keys(again), keys(again)]
        assert got == wanted, (name, got, wanted)
        assert again.iteration == loader.iteration == 4
        accelerator.free_memory()
"""

CROPS = """
    from fastloader import EncodedImage, transforms
    from fastloader.datasets import ImageFolder
    crop = transforms.Compose([transforms.RandomResizedCrop(8)])
    folder = ImageFolder(ARGUMENT["pictures"], crop)
    accelerator = make_accelerator()
    torch.manual_seed(RANK)

    def make():
        loader = FastLoader(folder, 2, shuffle=True, mean=(0.5,) * 3, std=(0.5,) * 3)
        return prepare(loader, accelerator)

    def pixels(batches):
        return [[images.double().sum().item(), classes.tolist()] for images, classes in batches]

    loader = make()
    native = os.environ.get("FASTLOADER_NATIVE") != "0"
    assert ("native images" in loader.plan()) == native, loader.plan()
    loader.state_dict()
    list(loader)
    iterator = iter(loader)
    next(iterator)
    crop_state = state = loader.state_dict()
    wanted = [pixels(iterator), pixels(loader)]
    torch.manual_seed(10 + RANK)
    again = make()
    again.load_state_dict(state)
    got = [pixels(again), pixels(again)]
    assert got == wanted, (got, wanted)
    # Also by skipping, and of an iterable dataset, whose pictures have no numbers.
    rest = pixels(skip_first_batches(again, 1))

    class Pictures(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield from ((EncodedImage(path, crop), 0) for path, _ in folder.samples)

    accelerator = make_accelerator(dispatch_batches=False)
    streamed = pixels(skip_first_batches(prepare(FastLoader(Pictures(), 2), accelerator), 1))
    crops = [crop_state, *got, rest, streamed]
"""

SKIPPING = """
    for name, (settings, options, iterable) in ARGUMENT["skipped"].items():
        accelerator = make_accelerator(**settings)

        def make():
            torch.manual_seed(3)
            count = 42 if iterable or "dispatch_batches" in settings else 41
            data = Stream(count) if iterable else Numbers(count)
            return prepare(FastLoader(data, 4, **options), accelerator)

        straight = make()
        epochs = [keys(straight) for _ in range(3)]
        loader = make()
        list(loader)
        if not iterable:
            loader.dataset.read.clear()
        rest = skip_first_batches(loader, 2)
        assert type(rest) is type(loader)
        got = keys(rest)
        assert got == epochs[1][2:], (name, got, epochs[1])
        assert keys(loader) == epochs[2], name
        if not iterable:
            assert len(rest) == len(loader) - 2
"""

# Changed for a while as join_uneven_inputs does it, on the batch sampler that it finds.
EVEN = """
    class Told(BatchSampler):
        epochs = []
        def set_epoch(self, epoch):
            self.epochs.append(epoch)

    accelerator = make_accelerator()
    batches = Told(range(9), 4, False)
    loader = prepare(FastLoader(Numbers(9), batch_sampler=batches), accelerator)
    even = [len(loader), keys(loader)]
    loader.batch_sampler.even_batches = False
    uneven = [len(loader), keys(loader)]
    assert Told.epochs == [0, 1]  # a batch sampler of the user's own
    options = {"num_workers": 1, "in_order": False}
    loader = prepare(FastLoader(Numbers(9), 2, **options), accelerator)
    loader.state_dict()
    for _ in loader:
        if not loader.end_of_dataloader:
            try:
                loader.state_dict()
            except ValueError as error:
                assert "one state serves all of them" in str(error)
            else:
                raise AssertionError("a state")
    loader.state_dict()
"""

REPORT = """
    report({"seen": seen, "states": states, "crops": crops, "even": [even, uneven]})
"""


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What both ranks reported. They compare within their processes, too."""
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "states").mkdir()
    # One picture many times: what differs are the crops.
    pictures = plain_folder(folder / "pictures", 12, classes=2)
    files = [each for each in sorted(pictures.rglob("*")) if each.is_file()]
    for each in files[1:]:
        each.write_bytes(files[0].read_bytes())
    argument = {
        "cases": CASES,
        "states": {name: CASES[name] for name in STATES},
        "skipped": {name: CASES[name] for name in CASES if "workers" not in name},
        "folder": str(folder / "states"),
        "pictures": str(pictures),
    }
    source = PRELUDE + SAMPLES + GOING_ON + CROPS + SKIPPING + EVEN + REPORT
    return torchrun(folder, 2, source, argument, group=False)


def test_samples_account_and_gathering_are_accelerates(ranks):
    for name, (settings, options, iterable) in CASES.items():
        steps = [[step for step in rank["seen"][name] if len(step) == 3] for rank in ranks]
        got = [step[0] for each in steps for step in each]
        if not options.get("drop_last"):
            assert {key for batch in got for key in batch} == set(range(21)), name
        # Accelerate knows no length of an iterable dataset, and so not what to drop.
        unknown = iterable and not settings.get("dispatch_batches", True)
        if settings.get("even_batches", True) and not options.get("drop_last") and not unknown:
            # What is gathered has no duplicates: in each epoch each sample once, on both ranks.
            assert steps[0] and len(steps[0]) == len(steps[1])
            for each in steps:
                gathered = [key for step in each for key in step[1]]
                assert sorted(gathered) == sorted(list(range(21)) * 2), name
        if not settings.get("even_batches", True):
            assert sorted(key for batch in got for key in batch) == sorted(list(range(21)) * 2)


def test_states_are_equal_on_all_ranks(ranks):
    for name in STATES:
        assert ranks[0]["states"][name] == ranks[1]["states"][name], name


def test_crops_differ_between_ranks(ranks):
    (state, *passes), (other, *others) = [rank["crops"] for rank in ranks]
    assert state == other
    sums = [value for each in passes + others for value, _ in each]
    assert len(set(sums)) == len(sums)


def test_even_batches_may_be_changed_for_a_while(ranks):
    first, second = [rank["even"] for rank in ranks]
    assert first == [[2, [[0, 1, 2, 3], [8, 0, 1, 2]]], [2, [[0, 1, 2, 3], [8]]]]
    assert second == [[2, [[4, 5, 6, 7], [3, 4, 5, 6]]], [1, [[4, 5, 6, 7]]]]
