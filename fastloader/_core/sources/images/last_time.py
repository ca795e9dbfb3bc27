"""The arrays that a dataset's files became in the last epoch."""

from __future__ import annotations

import weakref
from typing import Any

# The same arrays mean that nothing has changed, so that a loader keeps what it built on them.
last_time: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
