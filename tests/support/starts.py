"""Watches for interpreters that this process starts, torchrun's and Ray's among them. Python has no
way to stop watching, so `watch` is called once."""

import multiprocessing.util
import os
import sys

_seen = []


def watch():
    sys.addaudithook(_note)
    # multiprocessing starts its own by another way, without telling.
    spawn = multiprocessing.util.spawnv_passfds

    def spawn_noted(path, args, passfds):
        _add([os.fsdecode(each) for each in args])
        return spawn(path, args, passfds)

    multiprocessing.util.spawnv_passfds = spawn_noted


def forget():
    _seen.clear()


def seen():
    """The commands since `forget`, each as one text."""
    return list(_seen)


def note(command):
    """Notes a program that is started by another way: a warm interpreter."""
    _seen.append(command)


def _note(event, arguments):
    if event == "subprocess.Popen":
        command = arguments[1]
        command = [command] if isinstance(command, str | bytes | os.PathLike) else list(command)
        _add([os.fsdecode(each) for each in command])


def _add(command):
    program = os.path.basename(command[0]) if command else ""
    interprets = program.startswith(("python", "torchrun", "raylet", "gcs_server", "fastloader"))
    # multiprocessing's tracker of shared memory imports next to nothing.
    if interprets and not any("resource_tracker" in each for each in command):
        note(" ".join(command)[:120])
