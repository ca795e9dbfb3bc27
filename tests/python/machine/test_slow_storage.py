"""What tests and benchmarks call slow storage is that: late, faulty, and it sees every byte."""

import errno
import mmap
import os
import threading

import pytest

CONTENT = os.urandom(300_000)


def read_ten(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.pread(descriptor, 10, 0)
    finally:
        os.close(descriptor)


@pytest.fixture
def stored(slow):
    folder, storage = slow
    (folder / "one.bin").write_bytes(CONTENT)
    return folder / "one.bin", storage.path / "one.bin", storage


def test_it_shows_what_lies_there_and_nobody_writes_into_it(stored):
    _, shown, storage = stored
    assert shown.read_bytes() == CONTENT
    assert os.listdir(storage.path) == ["one.bin"]
    with pytest.raises(OSError) as refused:
        shown.write_bytes(b"")
    assert refused.value.errno == errno.EROFS


def test_every_byte_of_a_mapping_comes_from_it_once_pages_are_forgotten(stored):
    _, shown, storage = stored
    with open(shown, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:] == CONTENT
        for forget, served in ((False, 0), (True, len(CONTENT))):
            if forget:
                storage.forget()
            storage.reset()
            assert mapped[:] == CONTENT
            assert storage.counts()["bytes"] == served


def test_it_says_which_thread_waited(stored):
    _, shown, storage = stored
    storage.log()
    numbers = []

    def work():
        numbers.append(threading.get_native_id())
        shown.read_bytes()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    os.stat(shown)
    waited = {(call.operation, call.thread) for call in storage.calls() if call.path == "/one.bin"}
    assert ("open", numbers[0]) in waited and ("read", numbers[0]) in waited
    assert ("lookup", threading.get_native_id()) in waited
    assert ("open", threading.get_native_id()) not in waited


@pytest.mark.parametrize("error", ["EIO", "ESTALE", "ETIMEDOUT"])
def test_requests_fail(stored, error):
    _, shown, storage = stored
    storage.fail("read", error, of="one")
    with pytest.raises(OSError) as failed:
        read_ten(shown)
    assert failed.value.errno == getattr(errno, error)
    storage.mend()
    storage.fail("open", error, of="one", count=2)  # after ESTALE the kernel asks again
    with pytest.raises(OSError) as failed:
        read_ten(shown)
    assert failed.value.errno == getattr(errno, error)
    storage.mend()
    assert shown.read_bytes() == CONTENT


def test_short_reads(stored):
    _, shown, storage = stored
    storage.fail("read", most=1000, count=1)
    descriptor = os.open(shown, os.O_RDONLY)
    assert [len(os.pread(descriptor, 5000, 0)) for _ in range(2)] == [1000, 5000]
    os.close(descriptor)
    assert shown.read_bytes() == CONTENT


def test_requests_wait_side_by_side(stored):
    _, shown, storage = stored
    storage.set_latency(0.05)
    threads = [threading.Thread(target=os.stat, args=(shown,)) for _ in range(8)]
    storage.reset()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert storage.counts()["peak"] > 1


def test_a_file_that_another_one_has_replaced_is_stale(stored):
    kept, shown, _ = stored
    with open(shown, "rb") as file:
        other = kept.with_name("other.bin")
        other.write_bytes(b"other")
        os.replace(other, kept)
        assert shown.read_bytes() == b"other"
        assert file.read() == CONTENT  # as the server still has it
