"""Files of a `CacheFolder`, by names without what it puts before each."""

import os
import threading

NEVER = threading.Event()


def ours(name):
    """A name as the cache gives it."""
    return f"{0:024x}-{name}"


def writer(content):
    return lambda descriptor: os.pwrite(descriptor, content, 0)


def put(folder, name, content, modified=0):
    return folder.make(ours(name), len(content), modified, writer(content), NEVER)


def find(folder, name, size):
    return folder.find(ours(name), size)


def there(folder):
    """The names of its files."""
    prefix = ours("")
    return sorted(each.removeprefix(prefix) for each in os.listdir(folder.folder))
