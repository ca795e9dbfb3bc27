"""The line that shows how far something is: on a terminal only, and gone at the end."""

import re

import pytest
from PIL import Image
from terminal import on_terminal

from fastloader._core.machine import extension
from fastloader._core.machine.messages import Progress, duration, progress
from support import run_script

WORK = """
    import sys, time
    from fastloader._core.machine.messages import progress
    with progress("packing", 40, after=float(sys.argv[1])) as line:
        for number in range(40):
            time.sleep(0.02)
            line.step()
            if number == 30:
                line.above("thirty")
    sys.stderr.write("END")
"""


@pytest.mark.processes
def test_on_a_terminal():
    status, printed, shown = on_terminal(WORK, 0)
    assert (status, printed) == (0, "thirty\n")
    lines = re.findall(r"packing: (\d+) of 40 pictures, (\d+)/s, \d s left", shown)
    counts = [int(count) for count, _rate in lines]
    assert len(counts) >= 2 and counts == sorted(set(counts))
    assert all(10 < int(rate) <= 50 for _count, rate in lines)  # one every 20 ms, or later
    assert shown.endswith("\r\x1b[KEND")


@pytest.mark.processes
def test_short_work_shows_nothing():
    assert on_terminal(WORK, 30) == (0, "thirty\n", "END")


@pytest.mark.processes
def test_quiet_in_a_log():
    done = run_script(WORK, 0)
    assert (done.stdout, done.stderr) == ("thirty\n", "END")


@pytest.mark.processes
def test_only_the_first_rank_shows_it():
    assert on_terminal(WORK, 0, env={"LOCAL_RANK": "1"})[2] == "END"


@pytest.mark.processes
def test_workers_show_nothing():
    forked = """
        import multiprocessing, time
        from fastloader._core.machine.messages import progress
        def work():
            with progress("working", 3) as line:
                for _ in range(3):
                    time.sleep(0.3)
                    line.step()
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join()
    """
    assert on_terminal(forked) == (0, "", "")


def test_what_was_there_counts_for_no_rate():
    line = Progress("packing", 100, "pictures", 0.0, 40)
    line.step(10)
    line.step(30, anew=False)
    assert line.line(2.0) == "packing: 80 of 100 pictures, 5.0/s, 4 s left"


def test_bytes_and_an_unknown_end():
    line = Progress("fetching", 20_000_000, "bytes", 0.0, 0)
    line.step(5_000_000)
    assert line.line(2.0) == "fetching: 5.0 of 20.0 MB, 2.5/s, 6 s left"
    line = Progress("scanning", None, "files", 0.0, 0)
    line.step(5000)
    assert line.line(2.0) == "scanning: 5000 files, 2500/s"


@pytest.mark.parametrize(
    ("seconds", "words"), [(75.4, "75 s"), (185, "3 min 05 s"), (7800, "2 h 10 min"), (-3, "0 s")]
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_an_error_ends_the_line(capsys):
    with pytest.raises(KeyError), progress("packing", 3):
        raise KeyError
    assert capsys.readouterr().err == ""


@pytest.mark.processes
def test_a_long_scan_of_a_folder_shows_files(tmp_path):
    """With the delay taken away, since this folder takes a moment only."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(b"")
    scan = """
        import sys, time
        from fastloader._core.machine.messages import progress
        from fastloader.datasets import ImageFolder, files
        files.SILENT = float(sys.argv[2])
        def slow(path):
            time.sleep(0.25)
            return True
        ImageFolder(sys.argv[1], is_valid_file=slow)
    """
    status, _printed, shown = on_terminal(scan, tmp_path, 0)
    assert status == 0 and re.search(r"scanning .*: 1 files, \d.*/s", shown), shown
    assert on_terminal(scan, tmp_path, 30) == (0, "", "")


@pytest.mark.processes
def test_pack_and_index_show_theirs(tmp_path):
    """With each picture made slow, since this folder takes a moment only."""
    (tmp_path / "photos" / "a").mkdir(parents=True)
    for number in range(9):
        Image.new("RGB", (9, number + 1)).save(tmp_path / "photos" / "a" / f"{number}.jpg")
    slow = """
        import sys, time
        from fastloader.cli.__main__ import main
        from fastloader.cli import index, pack
        def slowly(prepare, indices, workers):
            for index in indices:
                time.sleep(0.1)
                yield prepare(index)
        index.ahead = pack.ahead = slowly
        sys.exit(main(sys.argv[1:]))
    """
    for words in (
        ["pack", tmp_path / "photos", tmp_path / "set.lmdb"],
        ["index", tmp_path / "photos"],
    ):
        if words[0] == "index" and extension.load() is None:
            continue
        status, _printed, shown = on_terminal(slow, *words)
        assert status == 0, shown
        assert re.search(rf"{words[0]}ing: \d of 9 pictures, [\d.]+/s, \d s left", shown)
        assert shown.endswith("\r\x1b[K")
        (tmp_path / "set.lmdb").unlink(missing_ok=True)
        assert run_script(slow, *words).stderr == ""
