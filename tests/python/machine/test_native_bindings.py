"""What the native module is handed, and when: daemon threads that come back too late, and what Python
code of ours would have to get wrong before anything else does."""

import numpy as np
import pytest
import torch

import fastloader
from support import run_script

native = fastloader._core.machine.extension.load()
if native is None:
    pytest.skip("needs the native module", allow_module_level=True)

# Each is a call that lets go of the GIL for long enough that the interpreter begins to exit meanwhile.
LATE = {
    "gather": """
        source = ctypes.create_string_buffer(1 << 22)
        out = ctypes.create_string_buffer(1 << 22)
        indices = (ctypes.c_int64 * 1024)(*range(1024))
        def call():  # four threads write the same bytes, and nobody reads them
            batch = _native.GatherBatch(
                [(ctypes.addressof(source), 4096, 4096, ctypes.addressof(out), 0, False)],
                [(0, 0, 1024)],
                (source, out), indices=ctypes.addressof(indices), count=1024, threads=0)
            batch.wait()
            batch.seconds()
    """,
    "buffer pool": """
        pool = _native.BufferPool()
        def call():
            pool.bytes(1 << 26)
            pool.stats()
    """,
    "shared slots": """
        table = _native.SharedSlotTable(workers=1, slots_per_worker=1, slot_bytes=1 << 24)
        slots = table.in_child()
        source = ctypes.create_string_buffer(1 << 24)
        lock = threading.Lock()
        def call():
            with lock:
                slots.begin(0)
                slots.place(0, ctypes.addressof(source), 1 << 23)
    """,
}


@pytest.mark.processes
@pytest.mark.parametrize("name", LATE)
def test_a_daemon_thread_that_comes_back_too_late_does_not_abort(name):
    source = (
        """
        import ctypes, threading, torch  # torch: so that the end takes its time
        from fastloader import _native
        """
        + LATE[name]
        + """
        call()  # what it raises in a thread would read like the end
        running = threading.Barrier(5)
        def work():
            running.wait()
            while True:
                call()
        for _ in range(4):
            threading.Thread(target=work, daemon=True).start()
        running.wait()
        """
    )
    for _ in range(2):
        assert run_script(source, fresh=True).stderr == ""


def folder(paths, ends):
    return native.FolderSource(paths, ends)


def test_a_folder_takes_no_arrays_with_gaps():
    paths = np.frombuffer(b"a.jpgb.jpg", np.uint8)
    ends = np.array([5, 10], np.uint64)
    assert folder(paths, ends).name(1) == "b.jpg"
    with pytest.raises(ValueError, match="without gaps"):
        folder(paths, np.array([5, 7, 10, 7], np.uint64)[::2])
    with pytest.raises(ValueError, match="without gaps"):
        folder(paths, ends[::-1])
    with pytest.raises(ValueError, match="without gaps"):
        folder(np.frombuffer(b"a..jpg", np.uint8)[::2], np.array([3], np.uint64))
    # One entry has no step.
    assert len(folder(paths[:5], ends[:1][::-1])) == 1


@pytest.fixture
def submitted(tmp_path):
    """A function that submits a batch of so many files, none of which is there."""

    def submit(count, memory=None):
        paths = np.frombuffer(b"".join(b"%04d" % i for i in range(count)), np.uint8)
        ends = np.arange(4, 4 * count + 1, 4, dtype=np.uint64)
        job = native.ImageJob(
            source=folder(paths, ends),
            transform=native.ImageTransform(exact=(4, 4)),
            planar=True,
        )
        return native.DecodeBatch(
            views=[([job], 0)],
            quota=native.DecodeQuota(1),
            indices=list(range(count)),
            samples=[],
            seeds=[1],
            kinds=[],
            memory=memory or native.BufferPool(),
        )

    return submit


def test_a_batch_that_is_not_done_shows_nothing(submitted):
    batch = submitted(2)
    pixels = np.zeros((4, 4, 3), np.uint8)
    calls = [
        batch.failures,
        batch.take,
        lambda: batch.transform_pixels(0, pixels=pixels.ctypes.data, height=4, width=4),
        lambda: batch.decode_other(0, index=0, seed=1, kind=0),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"call wait\(\) first"):
            call()
    assert batch.wait()
    assert [position for position, *_ in batch.failures()] == [0, 1]


def test_a_batch_that_is_taken_again(submitted):
    """As after Ctrl-C, which may come before there is a tensor. Its memory is free once the batch and
    all tensors over it are gone."""
    memory = native.BufferPool()
    batch = submitted(2, memory)
    assert batch.wait()
    batch.take()  # nobody has the capsule
    held = [torch.from_dlpack(batch.take()), torch.from_dlpack(batch.take())]
    assert held[0].shape == (2, 3, 4, 4) and held[0].data_ptr() == held[1].data_ptr()
    pixels = np.zeros((4, 4, 3), np.uint8)
    with pytest.raises(ValueError, match="taken already"):
        batch.transform_pixels(0, pixels=pixels.ctypes.data, height=4, width=4)
    held.append(batch)
    del batch
    while held:
        assert memory.stats()["in_use"] == 1
        held.pop()
    assert memory.stats()["in_use"] == 0


def test_a_position_that_the_batch_has_not(submitted):
    batch = submitted(2)
    assert batch.wait()
    pixels = np.full((4, 4, 3), 7, np.uint8)
    for position in (2, 1 << 40):
        with pytest.raises(ValueError, match=f"sample {position} of a batch of 2"):
            batch.transform_pixels(position, pixels=pixels.ctypes.data, height=4, width=4)
        with pytest.raises(ValueError, match=f"sample {position} of a batch of 2"):
            batch.decode_other(position, index=0, seed=1, kind=0)
    for height, width in ((0, 4), (4, 0)):
        with pytest.raises(ValueError, match="is 0, not between"):
            batch.transform_pixels(0, pixels=pixels.ctypes.data, height=height, width=width)
    with pytest.raises(ValueError, match="file 9 of 2"):
        batch.decode_other(0, index=9, seed=1, kind=0)
    batch.transform_pixels(1, pixels=pixels.ctypes.data, height=4, width=4)


def test_a_member_of_an_enum_is_the_one_that_its_class_holds(submitted):
    """So that the code may ask by ``is``."""
    batch = submitted(2)
    batch.wait()
    for _, reason, kind in batch.failures():
        assert kind is native.FailureKind.FAILED and "cannot" in reason
    assert native.Arrival.BATCH is not native.Arrival.END
