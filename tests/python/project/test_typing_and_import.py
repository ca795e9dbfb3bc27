"""What a user sees before the first batch: names, types, and an import that never fails."""

import json
import shutil
import sysconfig

import pytest
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter, _SingleProcessDataLoaderIter

import fastloader
from fastloader import FastLoader
from support import PACKAGE_ROOT, Pictures, run_script


def test_generic_and_subclass():
    assert issubclass(FastLoader, DataLoader)
    assert isinstance(FastLoader[int](Pictures()), DataLoader)
    assert isinstance(FastLoader(Pictures()), FastLoader)
    assert (PACKAGE_ROOT / "fastloader" / "py.typed").exists()


@pytest.mark.parametrize("workers", [0, 1])
def test_without_new_arguments_it_is_dataloader(workers):
    kind = _MultiProcessingDataLoaderIter if workers else _SingleProcessDataLoaderIter
    loader = FastLoader(Pictures(4), num_workers=workers)
    iterator = iter(loader)
    assert isinstance(iterator, kind)
    assert len(list(iterator)) == 4
    assert loader.stats()["path"] == "torch"


def test_arguments_in_torchs_order_with_torchs_defaults():
    import inspect

    ours = inspect.signature(FastLoader.__init__).parameters
    theirs = inspect.signature(DataLoader.__init__).parameters
    names = list(theirs)
    assert list(ours)[: len(names)] == names
    for name in names:
        assert (ours[name].default, ours[name].kind) == (theirs[name].default, theirs[name].kind)


def test_attributes_are_the_arguments():
    arguments = {
        "device": "cpu",
        "mean": [0.5],
        "std": [0.5],
        "channels_last": True,
        "image_key": 0,
        "depth": 2,
    }
    loader = FastLoader(Pictures(), **arguments)
    assert {name: getattr(loader, name) for name in arguments} == arguments


def test_import_is_light():
    script = """
        import sys
        import fastloader
        names = dir(fastloader)
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        for name in ("FastLoader", "DevicePrefetcher", "build_info", "Error", "BackendError"):
            assert name in names and name in fastloader.__all__, name
        assert issubclass(fastloader.BackendError, fastloader.Error)
        assert "torch" not in sys.modules
        fastloader.FastLoader
        assert "torch" in sys.modules
    """
    done = run_script(script, fresh=True)
    assert done.stderr == ""


def test_dir_names_what_is_public_and_nothing_else():
    parts = {"compat", "datasets", "transforms"}
    assert set(dir(fastloader)) == {*fastloader.__all__, *parts, "__version__"}
    assert all(hasattr(fastloader, name) for name in dir(fastloader))


def test_parts_are_there_after_importing_the_package():
    script = """
        import sys
        import fastloader
        assert "fastloader.datasets" not in sys.modules
        assert fastloader.datasets.ImageFolder is not None
        assert fastloader.transforms.CenterCrop is not None
        assert fastloader.compat.__name__ == "fastloader.compat"
    """
    assert run_script(script, fresh=True).stderr == ""


def test_unknown_name():
    with pytest.raises(AttributeError, match="'Nonsense'"):
        fastloader.Nonsense  # noqa: B018


def test_version_and_build_info():
    from importlib.metadata import version

    assert fastloader.__version__ == version("fastloader")
    info = fastloader.build_info()
    assert info["version"] == fastloader.__version__
    assert json.loads(json.dumps(info)) == info
    if info["native"]["loaded"]:
        assert info["native"]["why_not"] == ""
        assert info["cpu"]["isa"] in info["cpu"]["available"]
        assert isinstance(info["cuda"]["devices"], list)


BLOCK_TORCH = """
    import sys

    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in ("torch", "numpy"):
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    sys.meta_path.insert(0, Blocker())
    import fastloader
"""


def test_without_torch():
    script = """
    print(fastloader.build_info()["native"]["loaded"])
    try:
        fastloader.FastLoader
    except ModuleNotFoundError as error:
        assert "torch" in str(error)
    else:
        raise AssertionError("FastLoader without torch?")
    """
    done = run_script(BLOCK_TORCH + script, fresh=True)
    assert done.stdout.strip() in ("True", "False")


@pytest.fixture
def package(tmp_path):
    """A copy of the package without its native module."""
    native = shutil.ignore_patterns("_native*.so", "__pycache__")
    shutil.copytree(PACKAGE_ROOT / "fastloader", tmp_path / "fastloader", ignore=native)
    return tmp_path


IMPORT_COPY = """
    import sys, warnings
    sys.path.insert(0, sys.argv[1])
    # An editable install would look for the native module in the checkout.
    sys.meta_path[:] = [each for each in sys.meta_path if "editable" not in str(each)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        import fastloader
        from fastloader import FastLoader
        from fastloader._core.machine import extension
        import fastloader.loader
        assert fastloader.__file__.startswith(sys.argv[1]), fastloader.__file__
    from support import MEAN, STD, Pictures
    with warnings.catch_warnings(record=True) as later:
        warnings.simplefilter("always")
        loader = FastLoader(Pictures(4), device="cpu", mean=MEAN, std=STD)
        assert len(list(loader)) == len(list(loader)) == 4
    assert not [each for each in later if "native" in str(each.message)], later
    assert extension.load() is None
    for each in caught:
        print(each.category.__name__, each.filename)
        print(each.message)
"""


def suffix():
    return sysconfig.get_config_var("EXT_SUFFIX")


@pytest.mark.parametrize(
    "file, cause",
    [
        (None, "1. The module was never built"),
        (f"_native{suffix()}", "1. The file is damaged"),
        ("_native.cpython-38-x86_64-linux-gnu.so", "1. It was built for another Python"),
    ],
)
def test_a_broken_native_module_warns_once(package, file, cause):
    if file:
        (package / "fastloader" / file).write_bytes(b"this is not a library")
    lines = run_script(IMPORT_COPY, package, fresh=True).stdout.splitlines()
    assert lines[0].startswith("RuntimeWarning <string>"), lines[0]
    assert sum(line.startswith("RuntimeWarning") for line in lines) == 1
    text = "\n".join(lines)
    assert cause in text and "fastloader doctor" in text and "FASTLOADER_NATIVE=0" in text


def test_switched_off_is_silent(package):
    (package / "fastloader" / f"_native{suffix()}").write_bytes(b"this is not a library")
    assert run_script(IMPORT_COPY, package, env={"FASTLOADER_NATIVE": "0"}, fresh=True).stdout == ""


def test_left_out_on_purpose_is_silent(package):
    (package / "fastloader" / "_pure_wheel").touch()
    assert run_script(IMPORT_COPY, package, fresh=True).stdout == ""


def test_switch_with_a_wrong_value():
    done = run_script(
        "import fastloader", env={"FASTLOADER_NATIVE": "banana"}, check=False, fresh=True
    )
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ValueError") and "'banana'" in last and "0 (pure Python)" in last
