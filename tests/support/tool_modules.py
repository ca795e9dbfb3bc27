"""The modules of a folder of tools, which its own `__main__` finds beside itself."""

import contextlib
import importlib
import sys
import types

import pytest


@contextlib.contextmanager
def tool_modules(folder):
    """Gives all names of the modules. They are on the path for this block only."""
    names = [path.stem for path in folder.glob("*.py") if path.stem != "__main__"]
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for name in names:
            patch.delitem(sys.modules, name, raising=False)
        modules = [importlib.import_module(name) for name in names]
        yield types.SimpleNamespace(**{k: v for each in modules for k, v in vars(each).items()})
        for name in names:
            del sys.modules[name]
