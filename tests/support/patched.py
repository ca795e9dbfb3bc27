"""What runs while an object works, and patches of it as users make them."""

import functools
import sys
import zlib
from types import FunctionType

import covering

from fastloader._core.machine import identity

PACKAGES = ("torchvision", "timm", "PIL")
# Of other packages, the modules whose functions a user may have patched to change pictures.
MODULES = ("torch.nn.modules.module", "torch.utils.data.dataset")
OURS = ("fastloader.compat.timm.", "fastloader.datasets.", "fastloader.transforms.")
# In which no dataset stands.
ENCODED = tuple(
    f"fastloader.datasets.{name}"
    for name in ("encoded", "joint", "companions", "decode_image", "picture_source")
)


def ran(work):
    """Where the functions of these packages stand that ``work()`` calls: of each a list of (class,
    module or dict; name)."""
    codes = set()

    def note(frame, event, _argument):
        if event == "call":
            codes.add(frame.f_code)

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    homes = _homes(len(sys.modules))
    found = [homes[code] for code in codes if code in homes]
    return sorted(filter(_defined, found), key=lambda places: called(*places[0]))


def _defined(places):
    """Whether the function is of one of these packages, and not of one that they import it from."""
    holder, name = places[0]
    return (
        code_of(holder, name).co_filename
        == sys.modules[getattr(holder, "__module__", holder.__name__)].__file__
    )


@functools.lru_cache(1)
def _homes(_modules):
    """Where the functions of these packages stand, by their code; where each was defined comes first.
    Looked for again once there are more modules."""
    homes = {}
    for module in [*sys.modules.values()]:
        name = str(getattr(module, "__name__", ""))
        ours = name.startswith(OURS) and "._" not in name and name not in ENCODED
        if name.partition(".")[0] not in PACKAGES and name not in MODULES and not ours:
            continue
        for key, value in [*vars(module).items()]:
            if isinstance(value, type) and value.__module__ == name:
                for inner, each in vars(value).items():
                    _note(homes, value, inner, each)
            elif not ours:
                _note(homes, module, key, value)
    for kernels in _kernels().values():
        for kind, value in kernels.items():
            if kind.__name__ != "Tensor" and _code(value) in homes:
                _note(homes, kernels, kind, value)
    return homes


def _kernels():
    utils = "torchvision.transforms.v2.functional._utils"
    return identity.found(utils, "_KERNEL_REGISTRY") or {}


def _code(value):
    function = identity._function_of(value)
    return function.__code__ if type(function) is FunctionType else None


def code_of(holder, name):
    return _code(vars(holder)[name])


def _note(homes, holder, name, value):
    code = _code(value)
    if code is None:
        return
    places = homes.setdefault(code, [])
    defined = not isinstance(holder, dict) and code.co_name == name
    places.insert(0 if defined else len(places), (holder, name))


def is_taken(kind, holder, name):
    """Whether a test of this class changes a function: those of the class always. Of those that many
    classes run, Pillow's and torch's, each with one class in six, or with all."""
    own = isinstance(holder, type) and issubclass(kind, holder) and holder.__module__ not in MODULES
    key = f"{covering.SEED} {kind} {called(holder, name)}".encode()
    return own or covering.LONG or zlib.crc32(key) % 6 == 0


def patch(monkeypatch, places):
    """Puts a function that does the same in its place, wherever it stands."""
    for holder, name in places:
        before = holder[name] if isinstance(holder, dict) else vars(holder)[name]
        function = identity._function_of(before)

        @functools.wraps(function)
        def traced(*arguments, function=function, **options):
            return function(*arguments, **options)

        after = traced
        if isinstance(before, classmethod | staticmethod | property):
            after = type(before)(traced)
        if isinstance(holder, dict):
            monkeypatch.setitem(holder, name, after)
        else:
            monkeypatch.setattr(holder, name, after)


def called(holder, name):
    """What a plan calls it."""
    if isinstance(holder, dict):
        return f"kernel {name}"
    return f"{holder.__qualname__ if isinstance(holder, type) else holder.__name__}.{name}"
