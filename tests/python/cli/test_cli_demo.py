"""``fastloader demo``: it runs, its table and its pictures are there, its errors are readable."""

import contextlib
import dataclasses
import errno
import fcntl
import functools
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios

import numpy as np
import PIL
import pytest
import torch
from pictures import upstream_pillow
from PIL import Image

from fastloader import FastLoader
from fastloader.cli import demo, demo_plots, demo_training, pictures
from fastloader.cli.__main__ import main
from fastloader.cli.demo_training import PeakMemory, held_by
from support import HANG, PACKAGE_ROOT, eventually, run_script

RUN = """
    import sys
    from fastloader.cli.__main__ import main
    if __name__ == "__main__":
        sys.exit(main(sys.argv[1:]))
"""


def run_demo(*arguments):
    return run_script(RUN, "demo", "--device", "cpu", *arguments, timeout=HANG)


def figures(text, label):
    """The two numbers of a row of the table, before what FastLoader is better by."""
    row = next(line for line in text.splitlines() if line.strip().startswith(label))
    values = row.split()[-4:-2] if row.endswith(" x") else row.split()[-2:]
    return [float(number) for number in values]


def default_start_method():
    if sys.platform != "linux":
        return "spawn"
    return "forkserver" if sys.version_info >= (3, 14) else "fork"


def assert_is_a_picture(path, at_least):
    with Image.open(path) as file:
        file.load()
        assert file.format == "PNG"
        assert file.width >= at_least[0] and file.height >= at_least[1]
        assert np.asarray(file.convert("L")).std() > 5, "an empty figure"


def make_folder(folder, names, per_class=3, extension="png"):
    random = np.random.default_rng(0)
    for name in names:
        (folder / name).mkdir(parents=True)
        for index in range(per_class):
            pixels = random.integers(0, 256, (20, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{index}.{extension}")


@pytest.mark.processes
def test_demo_makes_pictures_trains_and_reports(tmp_path):
    out = tmp_path / "out"
    small = ["--pictures", 12, "--steps", 5, "--batch-size", 4, "--size", 32, "--workers", 1]
    done = run_demo("--out", out, *small)
    made = sorted(out.glob("data/*/*/*.jpg"))
    assert len(made) == 12 and len({path.parent.name for path in made}) == 6
    assert not list(out.rglob("*.part"))
    with Image.open(made[0]) as picture:
        assert picture.size == (demo.WIDTH, demo.HEIGHT)

    assert re.search(r"^ +FastLoader +DataLoader +better by$", done.stdout, re.MULTILINE)
    assert re.search(r"^ImageFolder runs +natively +in Python$", done.stdout, re.MULTILINE)
    assert min(figures(done.stdout, "images/s")) > 0
    assert min(figures(done.stdout, "waiting for data")) > 0
    assert all(0 < share <= 100 for share in figures(done.stdout, "% of the training time"))
    assert min(figures(done.stdout, "first batch after")) > 0
    assert max(figures(done.stdout, "CPU time with workers")) > 0
    assert min(figures(done.stdout, "peak memory")) > 20
    # Of six classes: what five steps leave of log(6), whatever the crops.
    assert all(0.5 < loss < 4 for loss in figures(done.stdout, "final loss"))
    assert "the classes of all 20 pictures, in order: the same with both loaders" in done.stdout
    if ".post" not in PIL.__version__:
        assert "12 pictures resized and centre-cropped by both: 12 equal, to the bit" in done.stdout
    assert re.search("decoded by +1 thread +1 process", done.stdout)
    assert done.stderr == ""  # bars are for terminals

    # DataLoader's workers begin as in a user's script, although the training is a spawned process.
    assert f"begin by\n    {default_start_method()}, Python's default" in done.stdout
    last = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(
        r"FastLoader (trained|did not train) .* DataLoader's [\d.]+ s\. README's .*", last
    )

    assert_is_a_picture(out / "batches.png", (600, 300))
    assert_is_a_picture(out / "waits.png", (600, 300))


@pytest.mark.processes
def test_demo_takes_a_folder_and_batches_larger_than_it(tmp_path):
    make_folder(tmp_path / "data", ["cat/old", "cat/new", "dog"], per_class=2)
    out = tmp_path / "out"
    done = run_demo(
        "--data", tmp_path / "data", "--out", out, "--steps", 3, "--workers", 0, "--size", 16
    )
    assert "3 steps of 6 pictures 16x16" in done.stdout
    assert not (out / "data").exists()
    assert_is_a_picture(out / "batches.png", (400, 300))


@pytest.mark.processes
def test_ctrl_c_ends_every_process(tmp_path):
    make_folder(tmp_path / "data", ["a", "b"])
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE_ROOT)}
    command = [sys.executable, "-m", "fastloader.cli", "demo", "--device", "cpu", "--size", "16"]
    command += ["--steps", "100000", "--data", tmp_path / "data", "--out", tmp_path / "out"]
    reader, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    process = subprocess.Popen(command, env=environment, stderr=terminal, start_new_session=True)
    os.close(terminal)
    shown = bytearray()

    def so_far():
        with contextlib.suppress(OSError):  # every process that could write has ended
            while select.select([reader], [], [], 0)[0]:
                shown.extend(os.read(reader, 65536))
        return shown.decode(errors="replace")

    try:
        eventually(lambda: "loss" in so_far(), so_far, seconds=HANG)
        assert "FastLoader:" in so_far() and "img/s" in so_far()
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(timeout=HANG) == 130
        assert "Traceback" not in so_far()
    finally:
        # Tests that come later count this process's children.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(reader)


def test_folder_without_pictures(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("no picture")
    assert main(["demo", "--data", str(tmp_path / "empty"), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "no picture in" in error and str(tmp_path / "empty") in error and ".jpg" in error
    assert main(["demo", "--data", str(tmp_path / "gone"), "--out", str(tmp_path / "out")]) == 1
    assert "gone is not a folder" in capsys.readouterr().err


@pytest.mark.processes
def test_unreadable_picture_is_named(tmp_path):
    make_folder(tmp_path / "data", ["a", "b"], extension="jpg")
    (tmp_path / "data" / "a" / "1.jpg").write_bytes(b"\xff\xd8 no picture")
    done = run_script(
        RUN, "demo", "--device", "cpu", "--size", 16, "--steps", 3, "--workers", 1,
        "--data", tmp_path / "data", "--out", tmp_path / "out", check=False, timeout=HANG,
    )  # fmt: skip
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "fastloader demo: cannot identify image file" in done.stderr
    assert str(tmp_path / "data" / "a" / "1.jpg") in done.stderr


def test_an_out_that_cannot_be_written_is_refused_first(tmp_path, capsys, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setitem(sys.modules, "torch", None)  # not even the packages are looked at
    assert main(["demo", "--out", str(tmp_path / "file" / "out")]) == 1
    error = capsys.readouterr().err
    assert f"--out {tmp_path / 'file' / 'out'} cannot be written: Not a directory" in error
    assert "name another folder" in error and "Traceback" not in error
    assert main(["demo", "--out", str(tmp_path / "file")]) == 1
    assert "cannot be written" in capsys.readouterr().err
    monkeypatch.setattr(demo.tempfile, "TemporaryFile", refuse_to_write)
    assert main(["demo", "--out", str(tmp_path / "read-only")]) == 1
    assert "read-only cannot be written: Read-only file system" in capsys.readouterr().err


def refuse_to_write(**_options):
    raise OSError(errno.EROFS, "Read-only file system")


def test_device_that_is_not_there(tmp_path, capsys):
    assert main(["demo", "--device", "nonsense", "--out", str(tmp_path / "out")]) == 1
    assert "nonsense" in capsys.readouterr().err
    assert not list((tmp_path / "out").iterdir()), "refused before any picture is made"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("PIL.Image", ["pip install pillow,", "pip install pillow-simd"]),
        ("tqdm", ["pip install tqdm matplotlib"]),
        ("matplotlib", ["pip install tqdm matplotlib"]),
        ("torch", ["pip install torch"]),
    ],
)
def test_missing_package_is_named(module, words, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo", "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert all(word in error for word in words) and "Traceback" not in error


@pytest.mark.parametrize(
    "arguments", [["--steps", "0"], ["--workers", "-1"], ["--batch-size", "x"]]
)
def test_bad_numbers_are_refused(arguments, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["demo", *arguments])
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err


# --- the pieces ---------------------------------------------------------------------------------


def test_dataset_of_a_folder(tmp_path):
    make_folder(tmp_path, ["b/deep/er", "a", "empty"])
    for path in (tmp_path / "empty").iterdir():
        path.unlink()
    dataset = demo_training.make_dataset(tmp_path, 16)
    assert dataset.classes == ["a", "b", "empty"] and len(dataset) == 6
    pixels, label = dataset[5]
    assert pixels.shape == (3, 16, 16) and pixels.dtype == torch.uint8 and label == 1


@upstream_pillow
def test_the_comparison_takes_the_native_path_and_finds_equal_pixels(tmp_path):
    make_folder(tmp_path, ["a", "b"], per_class=5, extension="jpg")
    found = demo_plots.compare_pixels(tmp_path, 14, at_most=4)
    assert found == demo_plots.Comparison(pictures=4, equal=4, native=True)


def test_the_comparison_sees_a_difference(tmp_path, monkeypatch):
    make_folder(tmp_path, ["a"], per_class=3, extension="jpg")
    from fastloader.cli.demo_plots import DataLoader

    def darker(dataset, batch_size):
        for images, labels in DataLoader(dataset, batch_size):
            images[1] //= 2
            yield images, labels

    monkeypatch.setattr(demo_plots, "DataLoader", darker)
    assert demo_plots.compare_pixels(tmp_path, 14).equal == 2


def test_both_loaders_see_the_same_pictures_in_the_same_order(tmp_path):
    make_folder(tmp_path, ["a", "b", "c"], per_class=4, extension="jpg")
    dataset = demo_training.make_dataset(tmp_path, 16)
    labels = []
    for name in ("FastLoader", "DataLoader"):
        job = demo_training.Job(name, tmp_path, "cpu", 5, 4, 0, 16, 7)
        loader, prepare = demo_training.make_loader(job, dataset)
        batches = demo_training.ready_batches(loader, prepare, 5, [], [])
        labels.append([batch[1].tolist() for batch in batches])
        if name == "FastLoader":
            assert loader.plan().startswith("native images")
    assert labels[0] == labels[1] and labels[0][0] != sorted(labels[0][0])


def test_pictures_are_reproducible_and_weigh_what_photographs_do(tmp_path):
    tasks = pictures.missing_pictures(tmp_path, 6, 400, 300, seed=3)
    assert pictures.write_pictures(tasks) == 6
    for task in tasks:
        bits = task.path.stat().st_size * 8 / (400 * 300)
        assert 0.8 < bits < 4.5, (task.kind, bits)
    again = pictures.picture("sea", 400, 300, tasks[5].seed)
    assert tasks[5].kind == "sea"
    again.save(tmp_path / "again.jpg", "JPEG", quality=88)
    assert (tmp_path / "again.jpg").read_bytes() == tasks[5].path.read_bytes()


def test_only_missing_pictures_are_made(tmp_path):
    tasks = pictures.missing_pictures(tmp_path, 7, 40, 30, seed=0)
    pictures.write_pictures(tasks[:4])
    assert pictures.missing_pictures(tmp_path, 7, 40, 30, seed=0) == tasks[4:]


@upstream_pillow
def test_the_boxes_that_are_drawn_are_those_of_the_crops(tmp_path):
    make_folder(tmp_path, ["a", "b"], per_class=4, extension="jpg")
    found = demo_plots.crop_some(tmp_path, 12, seed=0)
    assert [picture.name for picture in found] == ["a"] * 3 + ["b"] * 3
    boxes = set()
    for picture in found:
        assert picture.original.shape == (20, 30, 3) and len(picture.crops) == demo_plots.EPOCHS
        for crop in picture.crops:
            left, top, width, height = crop.box
            box = (left, top, left + width, top + height)
            cut = Image.fromarray(picture.original).crop(box).resize((12, 12), Image.BILINEAR)
            if crop.mirrored:
                cut = cut.transpose(Image.FLIP_LEFT_RIGHT)
            assert np.array_equal(np.asarray(cut), crop.pixels)
            boxes.add(box)
    assert len(boxes) > demo_plots.EPOCHS, "each epoch draws others"


def test_crops_of_the_python_path_have_no_boxes(tmp_path, monkeypatch):
    make_folder(tmp_path / "data", ["a"], per_class=2)
    monkeypatch.setattr(demo_plots, "FastLoader", functools.partial(FastLoader, native=False))
    found = demo_plots.crop_some(tmp_path / "data", 12, seed=0)
    assert len(found) == 2 and all(crop.box is None for crop in found[0].crops)
    demo_plots.draw_crops(found, tmp_path / "batches.png")
    assert_is_a_picture(tmp_path / "batches.png", (400, 300))


def test_batches_go_on_into_the_next_epoch():
    asks, waits = [], []
    batches = list(demo_training.ready_batches([1, 2, 3], lambda batch: -batch, 7, asks, waits))
    assert batches == [-1, -2, -3, -1, -2, -3, -1] and len(asks) == len(waits) == 7
    assert all(ask + wait <= later for ask, wait, later in zip(asks, waits, asks[1:]))


def two_runs(folder, labels=((1, 2), (1, 2)), plan="native images: x"):
    runs = []
    for name, speed, seen in zip(("FastLoader", "DataLoader"), (1.0, 123.0), labels):
        job = demo_training.Job(name, folder, "cuda:0", 3, 4, 2, 96, 0)
        waits, losses = [speed, 0.5, 0.5], [2.0, 1.0, 0.5]
        run = demo_training.Run(
            job, ["a"], [0.0, speed + 1, speed + 2], waits, speed + 4, 2.0, losses, None, 5_000_000, 2,
            list(seen), plan if name == "FastLoader" else "", "fork",
        )  # fmt: skip
        runs.append(run)
    return runs


def test_table_is_aligned_and_says_what_the_device_held(tmp_path):
    runs = two_runs(tmp_path)
    lines = demo_plots.side_by_side(runs, demo_plots.Comparison(8, 8, True)).splitlines()
    start = next(i for i, line in enumerate(lines) if line.endswith("better by"))
    end = lines.index("", start)
    assert {len(line) for line in lines[start:end] if line.endswith(" x")} == {len(lines[start])}
    text = "\n".join(lines)
    ratio = {line.split("   ")[0]: line.split()[-2:] for line in lines[start:end]}
    assert ratio["waiting for data, s (1)"] == ["62", "x"]  # 124 s and 2 s
    assert ratio["training time, s"] == ["25", "x"]  # 127 s and 5 s
    assert ratio["images/s, after the first batch"] == ["1.00", "x"]
    assert figures(text, "images/s") == [2, 2]  # eight pictures in the 4 s after the first batch
    assert figures(text, "peak cuda:0 memory") == [5, 5]
    assert "not known" in text
    assert "2 threads" in text and "2 processes" in text
    assert "all 2 pictures, in order: the same" in text and "8 equal, to the bit" in text
    assert "Pillow-SIMD" not in text and "Python path" not in text
    assert "other random numbers" in text
    assert max(map(len, lines)) <= 110


def test_the_gain_is_one_sentence(tmp_path):
    fast, plain = two_runs(tmp_path)
    faster = dataclasses.replace(fast, seconds=3.0)  # two seconds after the first batch
    assert demo_plots.gain([faster, plain]) == (
        "FastLoader trained 2.0 times as fast, on 2.0 s of CPU time where DataLoader took 2.0 s: its "
        "loop waited 2.0 s for data, and DataLoader's 124.0 s. README's chart compares loading alone: "
        "no loader makes the steps themselves faster."
    )
    assert demo_plots.gain([fast, plain]).startswith(
        "FastLoader did not train faster here, on 2.0 s of CPU"
    )


def test_runs_are_drawn_whatever_they_measured(tmp_path):
    fast, plain = two_runs(tmp_path)
    idle = dataclasses.replace(fast, waits=[0.0] * 3)
    for number, runs in enumerate([[fast, plain], [idle, plain], [plain, idle]]):
        demo_plots.draw_waits(runs, tmp_path / f"{number}.png")
        assert_is_a_picture(tmp_path / f"{number}.png", (600, 300))


def test_table_says_what_is_not_as_it_should_be(tmp_path):
    runs = two_runs(tmp_path, labels=((1, 2), (2, 1)), plan="Python path: native=False")
    text = demo_plots.side_by_side(runs, demo_plots.Comparison(8, 5, False))
    assert "in order: NOT THE SAME" in text and "by both: 5 equal" in text
    assert "Pillow-SIMD" in text and "Python path: native=False" in text
    assert "other random numbers" not in text
    assert "2 threads" not in text


def test_peak_memory_sees_this_process():
    with PeakMemory() as peak:
        held = bytearray(64 << 20)
        held[::4096] = b"x" * len(held[::4096])
        assert held_by("self") > 64 << 20
    assert peak.bytes is not None and peak.bytes > 0
    assert held_by("0") == 0


@pytest.mark.processes
def test_a_full_disk_ends_in_a_sentence(tmp_path):
    limited = """
        import resource, sys
        from fastloader.cli.__main__ import main
        if __name__ == "__main__":
            resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
            sys.exit(main(sys.argv[1:]))
    """
    out = tmp_path / "out"
    done = run_script(limited, "demo", "--pictures", "4", "--out", out, check=False, fresh=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert f"fastloader demo: --out {out}: File too large; make room" in done.stderr
    assert not list(out.rglob("*.part"))
