"""Where decode threads run."""

import os

import pytest
from pictures import plain_folder

from fastloader._core.machine import extension
from support import run_script

AFFINITY = """
    import os, sys
    from fastloader import FastLoader
    from fastloader.datasets import ImageFolder
    from fastloader.transforms import Resize
    from support import named_threads

    def may_run():
        threads = [tid for tid, name in named_threads().items() if name == "fl-decode"]
        assert threads
        return {frozenset(os.sched_getaffinity(tid)) for tid in threads}

    everywhere = os.sched_getaffinity(0)
    one = {min(everywhere)}
    loader = FastLoader(ImageFolder(sys.argv[1], Resize((8, 8))), batch_size=4, num_workers=2)
    for allowed, wanted in ((one, one), (everywhere, everywhere), (one, everywhere)):
        os.sched_setaffinity(0, allowed)
        list(loader)
        assert may_run() == {frozenset(wanted)}, (may_run(), allowed)
"""


@pytest.mark.processes
@pytest.mark.skipif(extension.load() is None, reason="about native threads")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two processors")
def test_decode_threads_run_where_the_loop_may(tmp_path):
    """Or where it once might: fewer processors may be those of the loop's thread alone."""
    run_script(AFFINITY, plain_folder(tmp_path), fresh=True)
