"""Lets the processes that a test starts import torchvision as the test does: `import_torchvision` says
why. Python imports this file before all others in a process that has its folder in PYTHONPATH."""

import importlib.machinery
import importlib.util
import sys


class Finder:
    """Imports torchvision when it is asked for, and then is done. Before that, torch is not needed."""

    def find_spec(self, name, path=None, target=None):
        if name != "torchvision":
            return None
        sys.meta_path.remove(self)
        if importlib.util.find_spec(name) is None:
            return None
        from pictures import import_torchvision

        return importlib.machinery.ModuleSpec(name, Imported(import_torchvision()))


class Imported:
    """The loader of a module that has been imported."""

    def __init__(self, module):
        self._module, self._spec = module, module.__spec__

    def create_module(self, spec):
        return self._module

    def exec_module(self, module):
        module.__spec__ = self._spec  # which Python has just replaced


sys.meta_path.insert(0, Finder())
