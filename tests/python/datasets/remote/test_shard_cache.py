"""`ShardCache`: contents that are not what their ETag says, and processes that end in the middle."""

import hashlib
import os
import random
import re
import subprocess
import sys
import textwrap
import warnings

import pytest

from fastloader.datasets import ShardCache
from fastloader.datasets._remote import shard_cache
from fastloader.datasets._remote.object_store import RemoteObject
from fastloader.errors import Error
from support import HANG, PACKAGE_ROOT

SIZE = 5000


class Contents:
    """In the place of a connection: the contents of each URL, time after time."""

    def __init__(self):
        self.rng = random.Random(os.urandom(8))
        self.of = {}
        self.reads = 0

    def read(self, wanted, begin, end):
        self.reads += 1
        versions = self.of[wanted.url]
        return (versions.pop(0) if len(versions) > 1 else versions[0])[begin:end]

    def put(self, url, *, tag=None, versions=None):
        """An object whose tag is the MD5 of the first version, unless another tag is given."""
        versions = versions or [self.rng.randbytes(SIZE)]
        self.of[url] = versions
        right = hashlib.md5(versions[0]).hexdigest()
        return RemoteObject(url, SIZE, tag or right, 0)


@pytest.fixture
def contents():
    return Contents()


@pytest.fixture
def cache(tmp_path, contents):
    cache = ShardCache(tmp_path / "cache", 10**6)
    cache.connection = contents
    return cache


def md5(rng):
    return hashlib.md5(rng.randbytes(8)).hexdigest()


def fetched(cache, wanted):
    """What the shard is in the cache, and how many times it came for that."""
    before = cache.connection.reads
    held = cache.fetch(wanted)
    found = held.read(0, SIZE)
    held.close()
    return found, cache.connection.reads - before


def test_a_shard_that_was_harmed_on_the_way_comes_again(cache, contents):
    right, wrong = (contents.rng.randbytes(SIZE) for _ in range(2))
    wanted = contents.put("s3://b/a.tar", versions=[wrong, right])
    wanted = RemoteObject(wanted.url, SIZE, hashlib.md5(right).hexdigest(), 0)
    assert fetched(cache, wanted) == (right, 2)
    assert cache.counts()["mismatches"] == 1


def test_a_shard_that_is_harmed_each_time(cache, contents):
    versions = [contents.rng.randbytes(SIZE) for _ in range(4)]
    wanted = contents.put("s3://b/a.tar", tag=md5(contents.rng), versions=versions)
    with pytest.raises(Error, match=r"a\.tar came 3 times with other contents"):
        cache.fetch(wanted)


def test_an_old_copy_of_one_shard_leaves_the_others_compared(cache, contents):
    assert fetched(cache, contents.put("s3://b/0.tar"))[1] == 1
    for number in range(1, 6):
        old = contents.put(f"s3://b/{number}.tar", tag=md5(contents.rng))
        with pytest.warns(RuntimeWarning, match=rf"^s3://b/{number}\.tar: its contents are not"):
            assert fetched(cache, old)[1] == 2
    right, wrong = (contents.rng.randbytes(SIZE) for _ in range(2))
    wanted = contents.put("s3://b/a.tar", versions=[wrong, right])
    wanted = RemoteObject(wanted.url, SIZE, hashlib.md5(right).hexdigest(), 0)
    assert fetched(cache, wanted) == (right, 2)


def test_a_bucket_whose_tags_are_no_md5s(cache, contents):
    """Some shards tell that, and the others come once. What is said of it is said once."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("default")
        for number in range(8):
            wanted = contents.put(f"s3://b/{number}.tar", tag=md5(contents.rng))
            found, times = fetched(cache, wanted)
            assert found == contents.of[wanted.url][0]
            assert times == (2 if number < shard_cache._NO_MD5 else 1)
    (warning,) = said
    assert str(warning.message).startswith("s3://b: contents are not what their ETag says")
    # Another bucket is another matter.
    right, wrong = (contents.rng.randbytes(SIZE) for _ in range(2))
    wanted = contents.put("s3://other/a.tar", versions=[wrong, right])
    wanted = RemoteObject(wanted.url, SIZE, hashlib.md5(right).hexdigest(), 0)
    assert fetched(cache, wanted) == (right, 2)


@pytest.mark.parametrize("name", ["ü" * 300 + ".tar", "x" * 300, "a\nb\x00 c.tar", "日本語" * 40])
def test_any_name_is_the_name_of_a_file(cache, contents, name):
    wanted = contents.put(f"s3://b/folder/{name}")
    found, _ = fetched(cache, wanted)
    assert found == contents.of[wanted.url][0]
    with open(cache.path(wanted) + ".fastloader-tar.01234567.part", "wb"):
        pass  # the longest that is made of it
    assert re.fullmatch(r"[0-9a-f]{24}-[A-Za-z0-9_.-]{1,100}", os.path.basename(cache.path(wanted)))


# --- a process that ends -------------------------------------------------------------------------------

PARTS = 400


def run(tmp_path, ending):
    """What a process says that fetches a shard of many parts, and comes to its end in the middle. Its
    requests are answered when the interpreter waits for its threads."""
    script = f"""
        import concurrent.futures.thread  # whose function, which waits for threads, is called last
        import threading
        go = threading.Event()
        threading._register_atexit(go.set)  # and this one behind fastloader's

        from fastloader.datasets import ShardCache
        from fastloader.datasets._remote import shard_cache
        from fastloader.datasets._remote.object_store import RemoteObject

        shard_cache.PART = 10
        begun, asked, done = threading.Event(), [], []

        class Pool(concurrent.futures.ThreadPoolExecutor):
            def submit(self, *work):
                asked.append(super().submit(*work))
                if len(asked) == {PARTS}:
                    begun.set()
                return asked[-1]

        shard_cache.ThreadPoolExecutor = Pool

        class Answers:
            def read(self, wanted, begin, end):
                go.wait({HANG})
                done.append(begin)
                return bytes(end - begin)

        cache = ShardCache({str(tmp_path / "cache")!r}, 10**6)
        cache.connection = Answers()
        pool = concurrent.futures.ThreadPoolExecutor(1)
        fetching = pool.submit(cache.fetch, RemoteObject("s3://b/a.tar", {PARTS * 10}, None, 0))
        fetching.add_done_callback(lambda _: print(len(done), fetching.exception(), flush=True))
        begun.wait({HANG})
        {ending}
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=HANG,
        env={**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)},
        check=False,
    )


@pytest.mark.processes
@pytest.mark.parametrize("ending", ["raise RuntimeError('the loop fails')", "", "raise SystemExit"])
def test_a_process_that_ends_fetches_no_further_part(tmp_path, ending):
    done = run(tmp_path, ending)
    parts, said = done.stdout.split(" ", 1)
    assert int(parts) <= 4, done  # which were asked for before
    assert "fetching s3://b/a.tar was given up" in said
    assert ("the loop fails" in done.stderr) == ("fails" in ending)
    assert os.listdir(tmp_path / "cache") == [".guard"]
