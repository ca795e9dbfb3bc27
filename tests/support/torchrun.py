"""Ranks as processes under torchrun, over gloo."""

import json
import subprocess
import sys
import textwrap

import emulated_cuda
import torch.distributed
import warm

from support import HANG, script_environment

PRELUDE = """
    import itertools, json, os, sys, time
    import torch
    import torch.distributed as dist
    import torch.distributed.nn  # its functions keep the group as a default, if it is there by then
    from fastloader import FastLoader, Error
    from fastloader._core.order.distributed import share
    from support import Pictures
    if GROUP:
        dist.init_process_group("gloo")
    RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    OUT, ARGUMENT = sys.argv[1], json.loads(sys.argv[2])
    def report(value):
        with open(f"{OUT}/{RANK}.json", "w") as file:
            json.dump(value, file)
    def keys(batches):
        return [batch[1].tolist() for batch in batches]
"""


def torchrun(
    tmp_path, world, source, argument=None, options=(), group=True, launcher=False, **variables
):
    """Runs ``source`` on ``world`` processes, in a process group unless it makes that itself;
    returns what each rank reported. The ranks are warm interpreters with what torchrun gives its
    ranks; a test that is about torchrun itself asks for the ``launcher``, and so do ``options`` of
    it."""
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    out.mkdir()
    script = out / "script.py"
    script.write_text(
        f"GROUP = {group}\n"
        + textwrap.dedent(PRELUDE)
        + textwrap.dedent(source)
        + "\nfrom group_end import end_group\nend_group(globals())\n"
    )
    env = script_environment() | {"OMP_NUM_THREADS": "1", **variables}
    arguments = [str(out), json.dumps(argument)]
    if launcher or options or emulated_cuda.wanted():
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
        # A store on a free port of this machine.
        command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
        command += [*options, str(script), *arguments]
        ends = [
            subprocess.run(
                command, capture_output=True, text=True, timeout=HANG, env=env, check=False
            )
        ]
    else:
        ends = _warm_ranks(world, script, arguments, env)
    failed = [done for done in ends if done.returncode != 0]
    told = "\n".join(f"{done.stderr[:3000]}...{done.stderr[-6000:]}" for done in failed)
    assert not failed, f"{[done.returncode for done in ends]}: {told}"
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(world)]


def _warm_ranks(world, script, arguments, env):
    """The ranks of one machine. As under torchrun, the store is not rank 0's but of who started it."""
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    env |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_WORLD_SIZE": str(world),
        "ROLE_NAME": "default",
        "TORCHELASTIC_RUN_ID": script.parent.name,
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    source = script.read_text()
    ranks = [
        warm.Program(
            source,
            arguments,
            env | {"RANK": str(rank), "LOCAL_RANK": str(rank), "ROLE_RANK": str(rank)},
            str(script),
        )
        for rank in range(world)
    ]
    return warm.wait_for_all(ranks, HANG)
