"""A deprecated name warns at the user's line, and says what to write."""

import warnings

import pytest

from fastloader._core.machine.messages import warn_deprecated


def test_the_warning_says_since_when_until_when_and_what_to_write():
    with pytest.warns(DeprecationWarning) as caught:
        warn_deprecated("FastLoader(depht=3)", "depth=3", since="0.3", until="0.5")
    assert str(caught[0].message) == (
        "FastLoader(depht=3) is deprecated since fastloader 0.3 and will be gone in 0.5: use depth=3"
    )


def test_it_stands_at_the_first_line_that_is_not_of_the_package(monkeypatch):
    # Two functions that count as the package's, one through the other, and then this file.
    source = "def outer(inner):\n    inner()\n"
    package = {}
    from fastloader._core.machine import messages

    exec(compile(source, messages._PACKAGE + "/stand_in.py", "exec"), package)
    with pytest.warns(DeprecationWarning) as caught:
        package["outer"](lambda: package["outer"](_deprecated))
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        warnings.filterwarnings("ignore", module="no_such_module")
        with pytest.raises(DeprecationWarning):
            _deprecated()


def _deprecated():
    warn_deprecated("a name", "another", since="0.3.1", until="1.0")


@pytest.mark.parametrize("until", ["0.3", "0.3.9", "0.2"])
def test_a_name_does_not_go_in_the_version_that_deprecates_it(until):
    with pytest.raises(ValueError, match=r"stays for the whole of version 0\.3"):
        warn_deprecated("a name", "another", since="0.3", until=until)
