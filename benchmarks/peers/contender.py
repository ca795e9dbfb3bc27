"""The runner's side of a scenario: its process, what it is told, what it answers."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fastloader
from benchmarks.measure import Timing
from benchmarks.peers.scenarios import Scenario, Settings


class Skipped(Exception):
    """The scenario's peer is not to be had here; the message says why."""


class Failed(Exception):
    """The scenario's process gave up; the message holds what it said."""


class Contender:
    """Lives from its construction, which takes as long as its first epoch, until close(). ``program``
    is what the interpreter runs.

    ``timing`` and ``cpu``: seconds for each picture, one value per round, passed and spent by all its
    threads and workers. ``memory``: bytes that it and its workers
    hold after each epoch, the first included. ``waits``: seconds for each batch of all rounds but the
    first batch of each. ``first_batches``: seconds from constructing a loader to its first batch.
    ``plan``: FastLoader's, where the scenario tells it.
    """

    def __init__(
        self,
        name: str,
        scenario: Scenario,
        settings: Settings,
        interpreter: str | None,
        program: Sequence[str] = ("-m", "benchmarks.peers.process"),
    ) -> None:
        self.name, self.scenario = name, scenario
        self.threads = settings.threads if scenario.threads is None else scenario.threads
        self.batch_size = settings.batch_size
        self._said = Path(settings.work, f"{name}.stderr")
        with self._said.open("w") as said:
            self._process = subprocess.Popen(
                [interpreter or sys.executable, *program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                text=True,
                env=_environment(settings, foreign=interpreter is not None),
            )
        self.timing = Timing([])
        self.cpu = Timing([])
        self.memory: list[int] = []
        self.first_batches: list[float] = []
        self.waits: list[float] = []
        try:
            settings = dataclasses.replace(settings, threads=self.threads)
            told = {
                "scenario": dataclasses.asdict(scenario),
                "settings": dataclasses.asdict(settings),
            }
            answer = self.ask(json.dumps(told))
        except Failed:
            self.close()
            raise
        if "skip" in answer:
            self.close()
            raise Skipped(answer["skip"])
        self.versions: dict[str, str] = answer["ready"]
        self.cold_first_batch_s: float = answer["cold_first_batch_s"]
        self.plan: str = answer["plan"]
        self._note_memory()

    def round(self) -> None:
        epoch = self.ask("epoch")
        self.timing.seconds.append(epoch["seconds"] / epoch["pictures"])
        self.cpu.seconds.append(epoch["cpu_s_per_picture"])
        self._note_memory()
        if self._is_shown:
            self.waits += epoch["waits"][1:]

    def begin_anew(self) -> None:
        """Another loader up to its first batch. After all rounds: it would show in the memory."""
        if self._is_shown:
            self.first_batches.append(self.ask("first")["seconds"])

    @property
    def _is_shown(self) -> bool:
        """Whether it is a loader, with as many threads as are compared."""
        return bool(self.scenario.output) and self.scenario.threads is None

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.close()  # which ends it
        except BrokenPipeError:
            pass
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def ask(self, line: str) -> dict[str, Any]:
        """The answer of its process to one command."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, so there is no answer either
        answer = self._process.stdout.readline()
        if not answer:
            raise Failed(
                f"its process ended with status {self._process.wait()}: "
                f"{self._said.read_text(errors='replace')[-2000:]}"
            )
        parsed: dict[str, Any] = json.loads(answer)
        if "failed" in parsed:
            raise Failed(parsed["failed"])
        return parsed

    def _note_memory(self) -> None:
        self.memory.append(own_memory(str(self._process.pid)))


def own_memory(process: str) -> int:
    """Bytes held by a process and its descendants, without the pages of files, whose share depends on
    who else runs; what processes share counts once. 0 where the system does not tell."""
    folder = Path("/proc", process)
    total = 0
    try:
        for line in (folder / "smaps_rollup").read_text().splitlines():
            if line.startswith(("Pss_Anon:", "Pss_Shmem:")):
                total += int(line.split()[1]) * 1024
        for children in folder.glob("task/*/children"):
            total += sum(own_memory(child) for child in children.read_text().split())
    except OSError:
        pass
    return total


def _environment(settings: Settings, foreign: bool) -> dict[str, str]:
    """Every process runs this very package and this suite. Another interpreter gets nothing of what
    lies beside them: it has a torch and a Pillow of its own, and must not import what PYTHONPATH names
    for this one."""
    beside = Path(settings.work, "package")
    if not beside.exists():
        beside.mkdir()
        (beside / "fastloader").symlink_to(Path(fastloader.__file__).resolve().parent)
        (beside / "benchmarks").symlink_to(Path(__file__).resolve().parents[1])
    paths = [str(beside)]
    if not foreign and "PYTHONPATH" in os.environ:
        paths.append(os.environ["PYTHONPATH"])
    # With a safe path, a package in the current folder is not taken for the installed one.
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
