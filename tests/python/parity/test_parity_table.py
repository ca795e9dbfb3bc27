"""docs/parity.md: a row for every argument of DataLoader, and tests that exist."""

import inspect
import re

import pytest
from torch.utils.data import DataLoader

from support import PACKAGE_ROOT

FILES = {path.name: path for path in (PACKAGE_ROOT / "tests" / "python").rglob("test_*.py")}
TEXT = (PACKAGE_ROOT / "docs" / "parity.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in TEXT.splitlines()
    if line.startswith("|") and not line.startswith("|---")
]


def test_every_argument_has_a_row():
    documented = {match[1] for row in ROWS if (match := re.fullmatch(r"`(\w+)`", row[0]))}
    arguments = set(inspect.signature(DataLoader.__init__).parameters) - {"self"}
    assert arguments <= documented, arguments - documented


def test_every_row_names_what_shows_it():
    assert len(ROWS) > 40
    for row in ROWS:
        assert len(row) == 3 and (row[2] == "shown by" or re.search(r"`[\w/]+\.py", row[2])), row


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`((?:[\w/]+)\.py(?:::\w+)?)`", TEXT))))
def test_what_is_named_exists(name):
    file, _, test = name.partition("::")
    path = PACKAGE_ROOT / file if "/" in file else FILES[file]
    source = path.read_text()
    assert not test or re.search(rf"^def {test}\(", source, re.MULTILINE), f"no {test} in {file}"
