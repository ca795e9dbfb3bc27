"""FastLoader beside other loaders on the same pictures, into the device's memory.

The scenarios of ``python -m benchmarks.peers --device``, each in a process of its own, in turns: first
epochs without a step (pictures per second, CPU seconds), then the training step with each, in pairs with
the same step on a cached batch, and what the profiler shows of it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from device import Device
from plan import Plan

from benchmarks.measure import Timing, ratio, spread
from benchmarks.peers import crops, suite
from benchmarks.peers.contender import Contender, Failed, Skipped
from benchmarks.peers.scenarios import Settings

OURS = "fastloader-device"
LEFT_OUT = {"bare-roi": "a limit of crops alone, which benchmarks/peers measures"}
PREDICTED = (
    "16 threads: FastLoader 2.5 times DataLoader + Pillow and 3 times timm's PrefetchLoader, which "
    "decode whole pictures, with 0.4 of their CPU time, as on the CPU. The step: FastLoader 1.005 of "
    "the cached batch's; others keep up with a ResNet-50 (2800 pictures a second) only just, or not"
)

Json = dict[str, Any]


def measure(
    device: Device, plan: Plan, settings: Settings, only: list[str], save: Callable[[Json], None]
) -> Json:
    """``save`` gets what there is so far, now and then: the run may be cut off."""
    scenarios = crops.chosen(only, settings.device)
    results: Json = {
        "threads": settings.threads,
        "skipped": crops.left_out(only, settings.device),
        "failed": {},
    }
    program = [str(Path(__file__).with_name("peer_process.py")), plan.name]
    contenders: dict[str, Contender] = {}
    trained: dict[str, list[Json]] = {}

    def ask(what: str, name: str, action: Any) -> Any:
        """The action's answer; who fails is out."""
        suite.progress(f"{name}: {what}")
        try:
            return action()
        except Skipped as reason:
            results["skipped"][name] = str(reason)
        except Failed as reason:
            results["failed"][name] = str(reason)
            if name in contenders:
                contenders.pop(name).close()
        return None

    def turns(number: int) -> list[str]:
        return list(contenders) if number % 2 == 0 else list(reversed(contenders))

    try:
        for name, scenario in scenarios.items():
            if name in LEFT_OUT:
                continue
            made = ask(
                "first epoch",
                name,
                lambda name=name, scenario=scenario: Contender(
                    name, scenario, settings, None, program
                ),
            )
            if made is not None:
                contenders[name] = made
        for number in range(plan.peer_repeats):
            for name in turns(number):
                ask(f"round {number + 1} of {plan.peer_repeats}", name, contenders[name].round)
        # Now, so that a peer that fails in training has been measured without it.
        results["contenders"] = {name: described(each) for name, each in contenders.items()}
        results["against"] = against(contenders)
        save(results)
        loaders = [name for name, each in contenders.items() if each.scenario.output]
        for number in range(plan.peer_pairs):
            for name in turns(number):
                if name in loaders:
                    words = f"training, pair {number + 1} of {plan.peer_pairs}"
                    answer = ask(words, name, lambda name=name: contenders[name].ask("pair"))
                    if answer is not None:
                        trained.setdefault(name, []).append(answer)
            for name, pairs in trained.items():
                results["contenders"][name]["step"] = step(pairs, plan)
            save(results)
        for name in trained:
            if name in contenders:
                answer = ask("trace", name, lambda name=name: contenders[name].ask("trace"))
                results["contenders"][name]["step"]["trace"] = answer
    finally:
        for contender in contenders.values():
            contender.close()
    return results


def described(contender: Contender) -> Json:
    result = suite.described(contender)
    result["cpu_s_per_1000"] = spread([1000 * each for each in contender.cpu.seconds])
    result["step"] = None
    return result


def step(pairs: list[Json], plan: Plan) -> Json:
    loader, cached = (Timing([pair[name] for pair in pairs]) for name in ("loader", "cached"))
    return {
        "seconds": {"loader": loader.seconds, "cached": cached.seconds},
        "images_per_s": plan.batch / loader.median,
        "of_cached": ratio(loader, cached),
        "trace": None,
    }


def against(contenders: dict[str, Contender]) -> Json:
    """How many times FastLoader beats each loader: in pictures per second, and in CPU time for each."""
    if OURS not in contenders:
        return {}
    mine = contenders[OURS]
    return {
        name: {"speed": ratio(each.timing, mine.timing), "cpu": ratio(each.cpu, mine.cpu)}
        for name, each in contenders.items()
        if each.scenario.output and name != OURS
    }
