"""How worker processes end, and what an iterator does whose workers have."""

import gc
import os
import signal
import struct
import threading

import pytest
import torch
from interrupts import interrupt_at_line
from torch.utils.data import Dataset, _utils, default_collate

from fastloader import FastLoader
from fastloader._core.sources.python.processes import Inbox
from support import HANG, MEAN, STD, Pictures, alive, children, eventually, labels, run_script

WAYS = pytest.mark.parametrize("way", ["none", "cpu", "twin", "streams"])
IN_ORDER = [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.fixture
def options(enter_way, way):
    return {} if way == "none" else {**enter_way(way).options, "mean": MEAN, "std": STD}


@pytest.fixture
def ended_by_force(monkeypatch):
    """The processes that did not end by themselves. A worker has much time for that here."""
    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 20)
    forced = []
    kind = torch.multiprocessing.Process
    for name in ("terminate", "kill"):
        end = getattr(kind, name)
        monkeypatch.setattr(
            kind,
            name,
            lambda self, end=end, name=name: (forced.append((name, self.pid)), end(self)),
        )
    return forced


def refuse(samples):
    if any(label == 3 for _, label in samples):
        raise ValueError("refused")
    return default_collate(samples)


@WAYS
@pytest.mark.parametrize("persistent", [False, True])
def test_after_an_exception_the_workers_end_by_themselves(options, ended_by_force, persistent):
    """The traceback holds the iterator in a cycle, and the garbage collector ends what the iterator is
    made of before it ends the iterator."""

    def run():
        loader = FastLoader(
            Pictures(40),
            batch_size=2,
            num_workers=2,
            collate_fn=refuse,
            persistent_workers=persistent,
            **options,
        )
        for _ in loader:
            pass

    with pytest.raises(ValueError, match="refused"):
        run()

    def gone():
        gc.collect()  # again: the thread that advances the workers may still have had the error
        return not children()

    eventually(gone, lambda: f"{children()} gone", seconds=HANG)
    assert ended_by_force == []


class Stuck(Dataset):
    """Stays at index 2, and does not care for SIGTERM."""

    def __init__(self, stays=True, heeds=True):
        self.stays, self.heeds = stays, heeds
        self.there = torch.zeros(4).share_memory_()

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if self.stays and index in (2, 3):
            if not self.heeds:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            self.there[index] = 1
            while True:
                signal.pause()
        return index


@pytest.mark.parametrize("heeds", [True, False])
def test_workers_in_the_users_code(monkeypatch, heeds):
    """They have torch's time together, not one after the other, and then they are killed."""
    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    data = Stuck(heeds=heeds)
    iterator = iter(FastLoader(data, batch_size=1, num_workers=4))
    next(iterator)
    eventually(lambda: data.there[2] and data.there[3], lambda: data.there)
    workers = iterator._workers
    del iterator
    assert not any(each.is_alive() for each in workers)
    # Terminated by torch's own handler, which says 0; or killed.
    assert [each.exitcode for each in workers[2:]] == [0 if heeds else -signal.SIGKILL] * 2
    assert [each.exitcode for each in workers[:2]] == [0, 0]


def test_a_worker_that_is_killed_while_it_hands_over_a_batch(monkeypatch):
    """What came of the batch is no batch, and nobody waits for the rest."""
    monkeypatch.setenv("FASTLOADER_WORKER_RING", "0")
    iterator = iter(FastLoader(Large(), batch_size=None, num_workers=1))
    (worker,) = iterator._workers
    reader = iterator._worker_result_queue._reader
    eventually(reader.poll, lambda: "something has come")  # the pipe does not take all of it
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    with pytest.raises(RuntimeError, match=r"exited unexpectedly|killed by signal"):
        next(iterator)
    assert reader.poll() is False  # what had come was read


class Large(Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, index):
        return bytes(1 << 20)


@pytest.mark.exhaustive
@pytest.mark.covering
@WAYS
@pytest.mark.parametrize("backend", ["process", "thread"])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_time_out(options, backend, persistent):
    data = Waiting()
    loader = FastLoader(
        data,
        batch_size=2,
        num_workers=1,
        timeout=0.3,
        persistent_workers=persistent,
        worker_backend=backend,
        **options,
    )
    for _ in range(2):
        data.go.fill_(0)
        with pytest.raises(RuntimeError, match="timed out"):
            list(loader)
        if backend == "thread":  # it would stay for ever
            data.go.fill_(1)
        loader.dataset.stays.fill_(0)
        assert labels(loader) == IN_ORDER
        data.stays.fill_(1)
    data.go.fill_(1)


class Waiting(Pictures):
    def __init__(self):
        super().__init__(8)
        self.stays, self.go = torch.ones(()).share_memory_(), torch.zeros(()).share_memory_()

    def __getitem__(self, index):
        if index == 2 and self.stays.item():
            eventually(lambda: self.go.item(), lambda: "told to go on", seconds=HANG)
        return super().__getitem__(index)


@pytest.mark.exhaustive
@pytest.mark.parametrize("ending", ["dead", "dying", "one dead"])
@WAYS
def test_ctrl_c_in_a_loop_over_persistent_workers(options, ending):
    """Every process of a terminal gets it, and the workers end, sooner or later."""
    loader = FastLoader(
        Pictures(8), batch_size=2, num_workers=2, persistent_workers=True, **options
    )
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            for _ in loader:
                interrupt(loader._iterator._workers, ending)
        assert labels(loader) == IN_ORDER


def interrupt(workers, ending):
    for each in workers[: 1 if ending == "one dead" else 2]:
        os.kill(each.pid, signal.SIGINT)
        if ending != "dying":
            each.join()
    raise KeyboardInterrupt


def test_an_iter_that_was_interrupted(monkeypatch):
    """Persistent workers may answer later, which nobody may take for the answer to the next asking."""
    loader = FastLoader(range(8), batch_size=2, num_workers=2, persistent_workers=True)
    list(loader)
    iterator, (first, second) = loader._iterator, loader._iterator._workers
    got = type(iterator)._get_data

    def interrupted(self):
        got(self)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(type(iterator), "_get_data", interrupted)
        with pytest.raises(KeyboardInterrupt):
            iter(loader)
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == IN_ORDER
    assert loader._iterator is not iterator
    assert not first.is_alive() and not second.is_alive()


# --- what a queue receives ---------------------------------------------------------------------------


class Pipe:
    """A queue as an Inbox sees it, and its sending end."""

    def __init__(self):
        self._reader, self._writer = torch.multiprocessing.Pipe(duplex=False)
        self._sem = threading.Semaphore(0)

    def send(self, *pieces):
        for each in pieces:
            os.write(self._writer.fileno(), each)


@pytest.mark.parametrize("size", [1, 4, 70_000])
def test_messages_in_pieces(size):
    pipe = Pipe()
    inbox = Inbox(pipe)
    content = os.urandom(size)
    for head in (struct.pack("!i", size), struct.pack("!iQ", -1, size)):
        whole = head + content
        cuts = {0, 1, 3, 4, len(head), len(whole) // 2, len(whole)}
        pieces = [whole[a:b] for a, b in zip(sorted(cuts), sorted(cuts)[1:]) if a < b]
        for each in pieces[:-1]:
            pipe.send(each)
            assert inbox.receive(0) is None
        pipe.send(pieces[-1])
        message = inbox.receive(1)
        assert message == content and inbox.receive(0) is message
        inbox.taken()
        assert inbox.receive(0) is None
    assert pipe._sem.acquire(False) and pipe._sem.acquire(False) and not pipe._sem.acquire(False)


def test_ctrl_c_in_every_line():
    """Wherever it comes, the message comes whole, and once."""
    content = os.urandom(300)
    functions = [Inbox.receive, Inbox._whole, Inbox._read, Inbox._begin]
    number, came = 0, True
    while came:
        pipe = Pipe()
        inbox = Inbox(pipe)
        pipe.send(struct.pack("!i", 300), content)
        try:
            with interrupt_at_line(functions, number) as came:
                inbox.receive(1)
        except KeyboardInterrupt:
            pass
        assert inbox.receive(1) == content
        number += 1
    assert number > 20


SIGTERM = """
    import os, signal, sys, time
    import torch
    from torch.utils.data import Dataset
    from fastloader import FastLoader

    class Numbers(Dataset):
        def __len__(self):
            return 40

        def __getitem__(self, index):
            while index == 30 and sys.argv[1] == "stuck":
                time.sleep(1)
            return index

    os.setpgid(0, 0)
    told = []
    signal.signal(signal.SIGTERM, lambda *_: told.append(True))
    loader = FastLoader(Numbers(), batch_size=2, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    got = [next(iterator).tolist() for _ in range(3)]
    os.killpg(0, signal.SIGTERM)
    got += [next(iterator).tolist() for _ in range(10)]
    assert told and got == [[2 * each, 2 * each + 1] for each in range(13)], (told, got)
    print(*(each.pid for each in iterator._workers))
"""


@pytest.mark.processes
@pytest.mark.parametrize("how", ["idle", "stuck"])
def test_a_program_that_handles_sigterm_keeps_its_workers(how):
    """Until it ends, which no worker holds up, wherever that is."""
    done = run_script(SIGTERM, how, fresh=True)
    assert done.stderr == ""
    workers = [int(each) for each in done.stdout.split()]
    assert len(workers) == 2
    eventually(lambda: not any(map(alive, workers)), lambda: f"{workers} gone", seconds=HANG)
