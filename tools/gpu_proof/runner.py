"""Runs steps, each within its time, and notes how they ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from machine import ROOT, find, machine
from step import Options, Step, StepFailed


def run_command(command: list[str], environment: dict[str, str], seconds: float, log: Any) -> int:
    """Its exit status; 127 when it cannot be run, 124 when the time was up. None of its processes is
    left."""
    log.write(f"$ {' '.join(shown(command))}\n".encode())
    log.flush()
    try:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:  # where the build has failed
        log.write(f"cannot be run: {error}\n".encode())
        log.flush()
        return 127
    try:
        return process.wait(timeout=max(seconds, 1))
    except subprocess.TimeoutExpired:
        return 124
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)  # also what it may have left running
        except ProcessLookupError:
            pass
        process.wait()


def shown(command: list[str]) -> list[str]:
    """Without the text of the little programs."""
    return [word if "\n" not in word else "..." for word in command]


def run_step(
    step: Step, options: Options, environment: dict[str, str], limit: float, path: Path
) -> dict[str, Any]:
    began = time.monotonic()
    reasons: list[str] = []
    commands = 0
    status = 0
    with path.open("ab") as log:
        log.write(f"\n===== {step.name}: {step.about}\n".encode())
        log.flush()
        start = log.tell()
        try:
            for command in step.commands(options):
                left = limit - (time.monotonic() - began)
                if left <= 0:
                    status = 124
                    reasons.append("the time was up before " + " ".join(command[:3]))
                    break
                begin = log.tell()
                commands += 1
                code = run_command(command, {**environment, **step.environment}, left, log)
                log.seek(0, os.SEEK_END)
                if code != 0:
                    status = status or code
                    what = f"still running after {limit:.0f} s" if code == 124 else f"exit {code}"
                    reasons.append(f"{Path(command[0]).name}: {what}: {last_words(path, begin)}")
                    if step.name == "build":
                        break  # nothing after it can be right
        except StepFailed as failed:
            status, text = 1, str(failed)
            reasons.append(text)
            log.write(f"{text}\n".encode())
        text = last_words(path, start)
    return {
        "name": step.name,
        "status": status,
        "seconds": round(time.monotonic() - began, 1),
        "commands": commands,
        "failures": reasons,
        "last": text,
    }


def last_words(path: Path, start: int) -> str:
    """The last line that says something; of several, one that names what is missing."""
    with path.open("rb") as file:
        file.seek(start)
        lines = file.read().decode(errors="replace").splitlines()
    lines = [line.strip() for line in lines if line.strip() and not line.startswith("$ ")]
    telling = [line for line in lines if "no CUDA device" in line or "NVIDIA driver" in line]
    return (telling or lines or [""])[-1][:300]


def run(options: Options, chosen: list[Step], deadline: float) -> int:
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "steps.log"
    log.unlink(missing_ok=True)
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("FASTLOADER_")
    }
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])
    )
    environment |= {"PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    cuda = find("nvcc")
    if cuda is not None:
        environment["PATH"] = os.pathsep.join(
            [os.path.dirname(sys.executable), os.environ.get("PATH", ""), os.path.dirname(cuda)]
        )
    summary: dict[str, Any] = {"machine": machine(), "steps": []}
    for step in chosen:
        limit = min(step.limit, deadline - time.monotonic())
        if limit <= 5:
            result = {"name": step.name, "status": 124, "seconds": 0.0, "commands": 0}
            result |= {"failures": ["not begun: the time was up"], "last": ""}
        else:
            result = run_step(step, options, environment, limit, log)
        summary["steps"].append(result)
        summary["passed"] = not any(each["status"] for each in summary["steps"])
        (options.out / "summary.json").write_text(json.dumps(summary, indent=1) + "\n")
        word = "ok" if result["status"] == 0 else "FAILED"
        print(f"{word:<7}{step.name:<11}{result['seconds']:>6} s   {result['last']}", flush=True)
        for reason in result["failures"]:
            print(f"       - {reason}", flush=True)
    failed = [each["name"] for each in summary["steps"] if each["status"]]
    print(f"{len(chosen) - len(failed)} of {len(chosen)} steps passed; {options.out}/summary.json")
    return 1 if failed else 0
