"""`CacheFolder`: folders and files that are not this user's to change."""

import os
import shutil
import tempfile

import pytest
from cached_files import NEVER, find, ours, put, there

from fastloader.datasets._remote import cache_folder
from fastloader.datasets._remote.cache_folder import CacheFolder


@pytest.fixture
def folder(tmp_path):
    return CacheFolder(str(tmp_path / "cache"), 1000)


@pytest.fixture
def shared():
    """A folder that all users reach, with a file of this one."""
    if os.geteuid() != 0:
        pytest.skip("only root can be another user as well")
    base = tempfile.mkdtemp(dir="/tmp")
    os.chmod(base, 0o755)
    folder = CacheFolder(f"{base}/cache", 1000)
    put(folder, "a", b"0123456789")[0].close()
    yield folder
    shutil.rmtree(base)


def as_another_user(work):
    """What ``work`` returned, or the error that it raised, as text."""
    ready, said = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            text = str(work())
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(said, text.encode())
        os._exit(0)
    os.close(said)
    with open(ready, "rb") as file:
        text = file.read().decode()
    os.waitpid(child, 0)
    return text


def test_another_user_reads_what_is_there(shared):
    def work():
        held, removed = shared.make(ours("a"), 10, 0, lambda _: pytest.fail("made twice"), NEVER)
        return held.read(2, 3), removed, shared.room_for([])

    assert as_another_user(work) == "(b'234', 0, 990)"


@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_another_user_who_has_to_write(shared, mode):
    os.chmod(shared.folder, mode)
    if mode == 0o1777:  # a file that one has begun and the other one may not go on with
        with open(shared.path(ours("b")) + ".part", "wb"):
            pass
    text = as_another_user(lambda: put(shared, "b", bytes(20)))
    assert text.startswith("PermissionError: ")
    assert "the cache may not be written (Permission denied): give each user a ShardCache" in text
    # One that a disk has lost is theirs to remove, too.
    assert "give each user a ShardCache" in as_another_user(lambda: find(shared, "a", 11))


def test_files_that_another_user_may_not_remove(shared):
    """In a folder in which each user may remove their own only, such as /tmp."""
    os.chmod(shared.folder, 0o1777)
    put(shared, "c", bytes(500))[0].close()

    def work():
        held, removed = put(shared, "d", bytes(300))
        held.close()
        put(shared, "e", bytes(600))
        return removed

    text = as_another_user(work)
    assert text.startswith("CacheFull: ") and "510 of at most 1000" in text
    assert {"a", "c"} < set(there(shared))


def test_a_link_in_the_place_of_a_file(folder, tmp_path):
    """It would have this process write into any file of its user's."""
    os.makedirs(folder.folder)
    (tmp_path / "own").write_bytes(b"precious")
    for name in (ours("a") + ".part", ".guard"):
        os.symlink(tmp_path / "own", folder.path(name))
        with pytest.raises(OSError, match="the cache may not be written"):
            put(folder, "a", bytes(10))
        os.unlink(folder.path(name))
    assert (tmp_path / "own").read_bytes() == b"precious"


def test_a_file_that_is_removed_is_that_file(folder):
    """And no other one that has its name by now."""
    old, _ = put(folder, "a", bytes(10))
    old.remove()
    new, _ = put(folder, "a", b"0123456789")
    old.remove()
    assert find(folder, "a", 10).read(0, 3) == b"012"
    assert isinstance(new, cache_folder.HeldFile)
    new.remove()
    assert find(folder, "a", 10) is None
