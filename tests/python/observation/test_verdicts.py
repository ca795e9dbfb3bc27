"""The reasoning from figures to one verdict: what each case is called, what to do, and that no sentence
of a report contradicts another."""

import dataclasses
import itertools
import re

import pytest
import torch
from pictures import plain_folder

from fastloader import EncodedImage, FastLoader
from fastloader._core.observation import report as verdicts
from fastloader._core.observation.headspace import Measured
from fastloader._core.observation.report import make_report
from fastloader._core.observation.statistics import Figures, Observation, Stage, Statistics

SECONDS, PROCESSORS = 10.0, 4
RING = {"device_wait_s": 0.0, "pinned": True, "why_not_pinned": "", "depth": 3, "bytes": 0}
RING |= {"asked": 9, "found": 1}
LOOP, WORKERS = "the training loop's thread", "worker processes"
PLAN = "Python path: the dataset is a home.Photos, 4 worker processes; batches are delivered"


@pytest.fixture(autouse=True)
def processors(monkeypatch):
    monkeypatch.setattr(verdicts, "own_threads", lambda: PROCESSORS)
    monkeypatch.setattr(verdicts, "ranks_here", lambda: 1)


def stage(name, share, where, threads=1, *, bound, unit="picture"):
    """One that is at work for so much of all its threads' time."""
    return Stage(name, share * threads * SECONDS, 100, unit, where, threads, bound=bound)


def decoding(share, threads, read=0.0, recipe=0.0):
    """Decode threads, of whose work these shares are reading and the recipe."""
    parts = {"read": read, "decode": 1 - read - recipe, "recipe": recipe}
    where = "decode threads"
    return [
        stage(name, share * part, where, threads, bound="decode") for name, part in parts.items()
    ]


def python(fetch, collate=0.0, where=WORKERS, threads=4):
    made = [stage("fetch", fetch, where, threads, bound="Python", unit="batch")]
    if collate:
        made.append(stage("collate", collate, where, threads, bound="Python", unit="batch"))
    return made


def seen(
    waits,
    *stages,
    workers=4,
    free=None,
    gpu=False,
    own_threads=None,
    ring=None,
    packed=False,
    plan=PLAN,
):
    """A loop of 100 steps that waits for a share of its time; ``free``: how many times the speed it had
    with free data."""
    stages = [each for group in stages for each in (group if isinstance(group, list) else [group])]
    headspace = None if free is None else Measured(100, SECONDS / free)
    return Observation(
        statistics=Statistics(
            batches=100,
            between=99,
            steps=100,
            wait_s=waits * SECONDS,
            step_s=(1 - waits) * SECONDS,
        ),
        figures=Figures(
            stages=tuple(stages),
            threads=own_threads,
            ring={} if ring is None else {**RING, **ring},
            packed=packed,
        ),
        workers=workers,
        worker_backend="process",
        ahead=workers > 0,
        path="engine" if gpu else "cpu",
        device=torch.device("cuda", 0) if gpu else None,
        normalizes=True,
        auto={},
        headspace=headspace,
        describe=lambda: plan,
    )


COPY = {"where": "the device, normalising too", "threads": 1, "bound": "copy", "unit": "batch"}
# (what was seen, bound, words of the verdict, words of the advice)
CASES = {
    "the loop": (seen(0.02, decoding(0.3, 4), own_threads=4), "training step", "2 %", "next to nothing"),
    "the GPU": (seen(0.02, gpu=True, ring={}), "GPU", "the GPU takes the rest", "next to nothing"),
    "the GPU, which the host runs ahead of": (
        seen(0.9, gpu=True, ring={"device_wait_s": 8.0}), "GPU", "80 %", "next to nothing",
    ),
    "waits that cost nothing": (
        seen(0.3, decoding(0.3, 4), own_threads=4, free=1.01),
        "training step", "would be 1 % faster if data were free", "next to nothing",
    ),
    "a step that the loader slows": (
        seen(0.03, decoding(0.9, 4), own_threads=4, free=1.47),
        "training step", "slower beside the loader", "lower num_workers",
    ),
    "a step on a GPU that the loader slows": (
        seen(0.03, gpu=True, ring={}, free=1.47), "GPU", "slower beside the loader", "trace",
    ),
    "decode, 0 workers": (
        seen(0.9, decoding(1.0, 4), workers=0, own_threads=4),
        "decode", "decoding and what follows take 100 %", "smaller, once: fastloader pack",
    ),
    "decode, 2 threads of 4": (
        seen(0.9, decoding(0.95, 2), workers=2, own_threads=2),
        "decode", "decode", "raise num_workers from 2 to 4: 2 processors have no decode thread",
    ),
    "decode, all threads": (
        seen(0.9, decoding(0.95, 4), own_threads=4), "decode", "decode", "all 4 processors decode",
    ),
    "decode, much faster with free data": (
        seen(0.99, decoding(0.95, 4), own_threads=4, free=239.13), "decode", "99 %", "smaller",
    ),
    "decode of a packed file": (
        seen(0.9, decoding(0.95, 4), own_threads=4, packed=True), "decode", "decode", "--max-side",
    ),
    "the recipe": (
        seen(0.9, decoding(0.95, 4, recipe=0.7), own_threads=4),
        "decode", "most of it recipe", "leave out what is dear of the recipe",
    ),
    "encoded, 0 workers": (
        seen(0.7, decoding(0.6, 4), python(0.1, where=LOOP, threads=1), workers=0),
        "decode", "decode", "set num_workers=1: without workers",
    ),
    "encoded, 4 workers": (
        seen(0.9, decoding(0.95, 4), python(0.1)), "decode", "decode", "all 4 processors decode",
    ),
    "encoded, whose dataset is slow": (
        seen(0.7, decoding(0.1, 4), python(0.6, where=LOOP, threads=1), workers=0),
        "Python", "60 % of it runs the dataset's own code", "set num_workers=3",
    ),
    "storage": (
        seen(0.9, decoding(0.95, 4, read=0.8), own_threads=4),
        "storage", "reading takes 80 %", "pack the folder into one file",
    ),
    "storage of encoded pictures": (
        seen(0.9, decoding(0.95, 4, read=0.8), python(0.1)), "storage", "reading takes 80 %", "nearer",
    ),
    "storage of a packed file": (
        seen(0.9, stage("locate", 0.8, LOOP, bound="storage"), own_threads=4, packed=True),
        "storage", "finding records", "on a faster disk",
    ),
    "Python, 0 workers": (
        seen(0.9, python(0.9, where=LOOP, threads=1), workers=0),
        "Python", "90 % of it runs the dataset's own code", "set num_workers=3",
    ),
    "Python, 2 workers": (
        seen(0.9, python(0.95, threads=2), workers=2), "Python", "(2) are busy 95 %", "from 2 to 4",
    ),
    "Python, all workers": (
        seen(0.9, python(0.95)), "Python", "(4) are busy", "every processor has a worker",
    ),
    "Python that tells nothing": (seen(0.9), "Python", "nothing but Python can be", "native.md"),
    "collate": (
        seen(0.9, python(0.2, 0.75)), "Python", "most of it in collate_fn", "and collate_fn faster",
    ),
    "delivery": (
        seen(0.9, stage("copy", 0.85, **COPY), gpu=True, ring={}, workers=8),
        "copy", "copy (the device, normalising too) takes 85 %", "move fewer bytes",
    ),
    "delivery from pages": (
        seen(0.9, stage("copy", 0.85, **COPY), gpu=True, ring={"pinned": False, "why_not_pinned": "no"}),
        "copy", "copy", "let the ring be pinned",
    ),
    "normalising on the CPU": (
        seen(0.5, stage("normalise", 0.4, LOOP, bound="copy", unit="batch"), python(0.1)),
        "copy", "normalise (the training loop's thread) takes 40 %", "decode threads normalise",
    ),
    "what is not timed": (
        seen(0.9, decoding(0.1, 4), own_threads=4), "unknown", "nothing that is timed", "trace(path)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_case(case):
    figures, bound, verdict, advice = CASES[case]
    report = make_report(figures)
    assert report.bound == bound, str(report)
    assert verdict in report.verdict and advice in report.advice, str(report)
    if bound != "unknown":
        assert report.verdict.startswith(f"{bound}-bound: ")


def test_a_few_free_steps_tell_nothing():
    """The tutorial runs one for its warm-up, which on a busy machine takes as long as a slow loop's."""
    figures = seen(0.9, python(0.9, where=LOOP, threads=1), workers=0, free=1.0)
    assert make_report(figures).bound == "training step"
    few = dataclasses.replace(figures, headspace=Measured(4, 0.4))
    report = make_report(few)
    assert report.bound == "Python" and report.to_win is None
    assert "alone" not in str(report)


def contradictions(report):
    """Sentences of a report of which not both can be true."""
    text = str(report)
    nothing = "nothing to win" in text
    to_win = re.search(r"([0-9]+) % to win|(more than ten times) the speed to win", text)
    if nothing and to_win is not None and (to_win[2] or int(to_win[1]) >= 10):
        yield to_win[0]
    if nothing and report.bound not in ("GPU", "training step"):
        yield report.bound
    if report.bound == "Python" and "decoding and what follows" in text:
        yield "decode and Python"
    if re.search(r"\d{4,} %", text):
        yield "a share that nobody can read"
    if not report.copied_bytes and "ring" in text.replace("the ring be pinned", ""):
        yield "ring"
    if report.bound == "decode" and "most of it recipe" in text and "pack" in report.advice:
        yield "the recipe is not the files"


def test_no_sentence_contradicts_another():
    shares = (0.0, 0.05, 0.2, 0.5, 0.97)
    frees = (None, 1.0, 1.03, 1.2, 1.47, 9.0, 239.0)
    makers = (
        [], decoding(0.95, 4), decoding(0.4, 2, read=0.7), decoding(0.9, 4, recipe=0.8),
        python(0.9), python(0.1, 0.8), [*python(0.1), *decoding(0.5, 4)],
    )  # fmt: skip
    for share, free, made, gpu, workers in itertools.product(
        shares, frees, makers, (False, True), (0, 2, 4)
    ):
        own = None if any(each.bound == "Python" for each in made) else max(workers, 1)
        report = make_report(
            seen(
                share,
                made,
                workers=workers,
                free=free,
                gpu=gpu,
                own_threads=own,
                ring={} if gpu else None,
            )
        )
        assert not [*contradictions(report)], str(report)


class Encoded(torch.utils.data.Dataset):
    def __init__(self, root):
        from fastloader import transforms as T

        self.paths = sorted(root.rglob("*.jpg"))
        self.transform = T.Compose([T.RandomResizedCrop(200), T.PILToTensor()])

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        return EncodedImage(str(self.paths[index]), self.transform), index


def test_fetching_encoded_images_leaves_out_the_wait_for_the_threads(tmp_path, monkeypatch):
    from fastloader._core.sources.encoded.epoch import EncodedEpoch

    loader = FastLoader(Encoded(plain_folder(tmp_path)), batch_size=4)
    clock = iter(range(1_000_000))
    from fastloader._core.sources.python import iterators

    finished = EncodedEpoch.finished

    def slow(epoch, batch):
        for _ in range(1000):
            next(clock)
        return finished(epoch, batch)

    monkeypatch.setattr(EncodedEpoch, "finished", slow)
    monkeypatch.setattr(iterators.time, "perf_counter", lambda: float(next(clock)))
    for _ in loader:
        pass
    fetched = loader.stats()["stages"]["fetch"]
    assert fetched["count"] == 3 and fetched["seconds"] < 100
