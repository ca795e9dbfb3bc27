"""`CacheFolder`: one that makes a file, others that wait for it, and room that runs out."""

import contextlib
import errno
import fcntl
import logging
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from cached_files import NEVER, find, ours, put, there, writer

from fastloader.datasets._remote import cache_folder
from fastloader.datasets._remote.cache_folder import CacheFolder, CacheFull
from fastloader.errors import Error
from support import HANG, eventually


@pytest.fixture
def folder(tmp_path):
    return CacheFolder(str(tmp_path / "cache"), 1000)


def test_a_file_is_made_once_and_others_wait(folder, caplog):
    content = random.randbytes(100)
    begun, go = threading.Event(), threading.Event()
    folder.patience = HANG

    def slowly(descriptor):
        begun.set()
        assert go.wait(HANG)
        os.pwrite(descriptor, content, 0)

    caplog.set_level(logging.INFO, "fastloader")
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(folder.make, ours("a"), 100, 0, slowly, NEVER)
        assert begun.wait(HANG)
        second = pool.submit(
            folder.make, ours("a"), 100, 0, lambda _: pytest.fail("made twice"), NEVER
        )
        eventually(lambda: caplog.messages, lambda: "one that waits")
        assert not os.path.exists(folder.path(ours("a")))
        go.set()
        for held, removed in (first.result(HANG), second.result(HANG)):
            assert held.read(0, 100) == content and removed == 0
            held.close()
    (said,) = caplog.messages
    assert said == f"waits for another process or thread that makes {folder.path(ours('a'))}.part"
    assert there(folder) == [".guard", "a"]


@contextlib.contextmanager
def unfinished(folder, name):
    """Another process that has begun to make a file, and writes nothing."""
    os.makedirs(folder.folder, exist_ok=True)
    with open(folder.path(ours(name)) + ".part", "wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def test_one_that_makes_a_file_and_hangs(folder):
    folder.patience = 0.02
    with unfinished(folder, "a"):
        with pytest.raises(Error, match=r"-a\.part: another .* nothing into it for 0\.2 seconds"):
            put(folder, "a", b"0123456789")
    put(folder, "a", b"0123456789")[0].close()  # it has died


def test_one_that_makes_a_file_and_goes_on_may_take_its_time(folder, monkeypatch):
    """By a clock of our own, which is past the patience between any two looks."""
    now = [0.0]
    folder.patience = 1.0
    with unfinished(folder, "a") as file:

        class Stop(threading.Event):
            def wait(self, timeout=None):
                now[0] += 9
                if now[0] < 100:
                    os.utime(file.fileno(), ns=(0, int(now[0])))
                return False

        monkeypatch.setattr("time.monotonic", lambda: now[0])
        with pytest.raises(Error, match="nothing into it for 10 seconds"):
            folder.make(ours("a"), 10, 0, writer(b"0123456789"), Stop())
        assert 100 < now[0] < 120


def test_waiting_for_another_maker_ends_when_it_is_told_to(folder):
    folder.patience = 1.0
    stop = threading.Event()
    stop.set()
    with unfinished(folder, "a"):
        with pytest.raises(Error, match=r"waiting for .*-a\.part was given up"):
            folder.make(ours("a"), 10, 0, writer(b"0123456789"), stop)


def test_one_that_fails_lets_the_next_one_try(folder):
    def fails(_descriptor):
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError):
        folder.make(ours("a"), 10, 0, fails, NEVER)
    assert there(folder) == [".guard"]
    held, _ = put(folder, "a", b"0123456789")
    assert held.read(3, 4) == b"3456"


def test_a_file_that_is_made_between_two_looks(folder, monkeypatch):
    """The one that looked in vain leaves no unfinished file behind."""
    find_it = CacheFolder.find

    def made_behind(self, name, size):
        monkeypatch.setattr(CacheFolder, "find", find_it)
        found = find_it(self, name, size)
        put(folder, "a", b"0123456789")[0].close()
        return found

    monkeypatch.setattr(CacheFolder, "find", made_behind)
    held, _ = folder.make(ours("a"), 10, 0, lambda _: pytest.fail("made twice"), NEVER)
    assert held.read(0, 10) == b"0123456789"
    assert there(folder) == [".guard", "a"]


# --- room ----------------------------------------------------------------------------------------------


def test_what_is_held_stays_and_the_rest_goes(folder):
    held, _ = put(folder, "a", bytes(400))
    put(folder, "b", bytes(400))[0].close()
    other, removed = put(folder, "c", bytes(500))
    assert removed == 1
    assert there(folder) == [".guard", "a", "c"]
    with pytest.raises(CacheFull, match=r"no room for 200 bytes: 900 of at most 1000 are in use"):
        put(folder, "d", bytes(200))
    held.close()
    assert put(folder, "d", bytes(200))[1] == 1
    assert there(folder) == [".guard", "c", "d"]
    other.close()


def test_a_file_gets_its_name_while_nobody_adds_up(folder, monkeypatch):
    """One that looks at both names at the wrong times would find neither, and take its room."""
    rename, seen = os.rename, []

    def watched(*names):
        with open(folder.path(".guard")) as file:
            with pytest.raises(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(names)
        rename(*names)

    monkeypatch.setattr(os, "rename", watched)
    put(folder, "a", bytes(10))[0].close()
    assert len(seen) == 1


def test_what_is_written_beside_a_file_keeps_the_bound(folder):
    held, _ = put(folder, "a", bytes(400))
    for number, name in enumerate("bc"):
        put(folder, name, bytes(250))[0].close()
        os.utime(folder.path(ours(name)), ns=(number + 1, 0))
    assert folder.trim() == 0
    for name in "ab":
        with open(folder.path(ours(name)) + ".fastloader-tar", "wb") as file:
            file.write(bytes(90))
    assert folder.trim() == 1
    left = [".guard", "a", "a.fastloader-tar", "b.fastloader-tar", "c"]
    assert there(folder) == left and folder.used() == 830
    held.close()


def test_files_of_others_in_the_folder_stay(folder):
    """A user may name a folder that has something in it."""
    os.makedirs(folder.folder)
    names = ["a.tar", "0123-x.tar", f"x{ours('a')}", f"{ours('a')[1:]}", f"{0xABC:024X}-x.tar"]
    for name in names:
        with open(folder.path(name), "wb") as file:
            file.write(bytes(5000))
    for name in "bcd":
        put(folder, name, bytes(900))[0].close()
    assert folder.used() == 900
    assert set(names) < set(os.listdir(folder.folder))
    assert os.path.exists(folder.path(ours("d"))) and not os.path.exists(folder.path(ours("c")))


def test_nothing_goes_if_that_makes_no_room(folder):
    held, _ = put(folder, "a", bytes(400))
    for name in "bcd":
        put(folder, name, bytes(150))[0].close()
    with pytest.raises(CacheFull, match=r"no room for 700 bytes: 400 of at most 1000"):
        put(folder, "e", bytes(700))
    assert there(folder) == [".guard", "a", "b", "c", "d"]
    held.close()


def test_room_beside_what_is_in_use(folder):
    assert folder.room_for([]) == 1000
    one, _ = put(folder, "a", bytes(300))
    two, _ = put(folder, "b", bytes(200))
    put(folder, "c", bytes(100))[0].close()
    assert folder.room_for([]) == 500
    assert folder.room_for([ours("a")]) == 800
    assert folder.room_for([ours("a"), ours("b"), ours("none")]) == 1000
    with unfinished(folder, "d") as file:
        os.truncate(file.fileno(), 120)
        assert folder.room_for([]) == 380
        assert folder.room_for([ours("d")]) == 500
    one.close()
    two.close()
    assert folder.room_for([]) == 1000


def test_a_file_that_is_found_was_used(folder):
    """Without a look into it: the system may write the time of that itself, and may not."""
    put(folder, "a", bytes(10), modified=10**12)[0].close()
    os.utime(folder.path(ours("a")), ns=(5, 10**12))
    find(folder, "a", 10).close()
    status = os.stat(folder.path(ours("a")))
    assert status.st_atime_ns > 10**18 and status.st_mtime_ns == 10**12


def test_what_a_killed_process_has_left_goes_first(folder):
    os.makedirs(folder.folder)
    put(folder, "a", bytes(300))[0].close()
    for name in ("b.part", "c.part"):
        with open(folder.path(ours(name)), "wb") as file:
            file.write(bytes(300))
    put(folder, "d", bytes(600))[0].close()
    assert there(folder) == [".guard", "a", "d"]


def test_random_use_keeps_the_bound(folder):
    rng = random.Random(os.urandom(8))
    held = {}
    for _ in range(300):
        name = f"n{rng.randrange(12)}"
        if name in held:
            content, file = held.pop(name)
            assert file.read(0, len(content)) == content
            file.close()
            continue
        content = name.encode() * rng.randrange(5, 60)
        found = find(folder, name, len(content))
        if found is not None:
            found.close()
        in_use = sum(len(each) for each, _ in held.values())
        assert folder.room_for([]) == 1000 - in_use
        try:
            file, _ = put(folder, name, content)
        except CacheFull:
            assert in_use + len(content) > 1000
        else:
            held[name] = content, file
        assert folder.used() <= 1000
        assert all(os.path.exists(folder.path(ours(each))) for each in held)


# --- a disk that is full -------------------------------------------------------------------------------


class Disk:
    """A disk of so many bytes, on which a folder lies. ``kept``: what else is on it."""

    def __init__(self, folder, size, monkeypatch, error=errno.ENOSPC, kept=0):
        self.folder, self.size, self.error, self.kept = folder, size, error, kept
        self._allocate = os.posix_fallocate
        monkeypatch.setattr(os, "posix_fallocate", self.allocate)
        monkeypatch.setattr(cache_folder, "_free", self.free)

    def left(self):
        return self.size - self.kept - self.folder.used()

    def free(self, _folder):
        return 10**12 if self.error == errno.EDQUOT else self.left()  # which knows of no quota

    def allocate(self, descriptor, offset, size):
        if size > self.left():
            raise OSError(self.error, "No space left on device")
        self._allocate(descriptor, offset, size)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_a_disk_that_is_full_sooner_than_the_cache(folder, monkeypatch, error):
    Disk(folder, 500, monkeypatch, error)
    for name in "abc":
        put(folder, name, bytes(150))[0].close()
    held, removed = put(folder, "d", bytes(200))
    assert removed == 1 and there(folder) == [".guard", "b", "c", "d"]
    other, removed = put(folder, "e", bytes(300))
    assert removed == 2 and there(folder) == [".guard", "d", "e"]
    with pytest.raises(OSError, match=r"the disk has no 10 bytes .* a smaller max_bytes or anoth"):
        put(folder, "f", bytes(10))
    assert there(folder) == [".guard", "d", "e"]
    held.close()
    other.close()


def test_nothing_goes_for_a_disk_that_others_have_filled(folder, monkeypatch):
    Disk(folder, 500, monkeypatch, kept=200)
    put(folder, "a", bytes(150))[0].close()
    with pytest.raises(OSError, match="the disk has no 400 bytes"):
        put(folder, "b", bytes(400))
    assert there(folder) == [".guard", "a"]


# --- locks ---------------------------------------------------------------------------------------------


def test_a_forked_child_keeps_no_file_that_its_parent_has_closed(folder):
    held, _ = put(folder, "a", bytes(600))
    with forked_child():
        held.close()
        assert put(folder, "b", bytes(600))[1] == 1


@contextlib.contextmanager
def forked_child():
    """It has what is open here, and lives until the end."""
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(ready, 1)  # until the parent has closed the other end
        os._exit(0)
    try:
        yield
    finally:
        os.close(go)
        os.close(ready)
        os.waitpid(child, 0)


def test_a_forked_child_keeps_no_lock_of_a_look(folder, monkeypatch):
    """It is forked while the parent looks whether a file may go. The file has another name by then."""
    put(folder, "a", bytes(600))[0].close()
    path = folder.path(ours("a"))
    with contextlib.ExitStack() as stack:

        def forks(*_args):
            stack.enter_context(forked_child())
            return False

        monkeypatch.setattr(cache_folder, "is_at", forks)
        cache_folder.remove_unused(path)
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_forked_child_that_ends_leaves_its_parents_file_held(folder):
    held, _ = put(folder, "a", bytes(600))
    child = os.fork()
    if child == 0:
        held.close()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(CacheFull):
        put(folder, "b", bytes(600))
    held.close()


def test_a_file_that_is_removed_while_it_is_found(folder, monkeypatch):
    """The lock of a file that has just been removed is no hold on anything."""
    put(folder, "a", bytes(10))[0].close()
    lock = cache_folder.lock

    def remove_first(descriptor, kind, path):
        os.unlink(folder.path(ours("a")))
        monkeypatch.setattr(cache_folder, "lock", lock)
        return lock(descriptor, kind, path)

    monkeypatch.setattr(cache_folder, "lock", remove_first)
    assert find(folder, "a", 10) is None


def test_a_file_system_without_locks(folder, monkeypatch):
    def none(*_args):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(cache_folder.fcntl, "flock", none)
    with pytest.raises(OSError, match="no locks: give ShardCache a folder on a local disk"):
        put(folder, "a", bytes(10))


def test_nfs_is_refused_before_anything_is_fetched(folder, monkeypatch):
    """It takes a lock that shuts out others only by a file that is open for writing."""
    flock = fcntl.flock

    def as_nfs(descriptor, kind):
        writable = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        if kind & fcntl.LOCK_EX and not writable:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flock(descriptor, kind)

    monkeypatch.setattr(cache_folder.fcntl, "flock", as_nfs)
    with pytest.raises(OSError, match="no locks: give ShardCache a folder on a local disk"):
        folder.make(ours("a"), 10, 0, lambda _: pytest.fail("was fetched"), NEVER)
