"""Ranks as processes under torchrun, over gloo."""

import json
import os
import subprocess
import sys
import textwrap

from support import HANG, PACKAGE_ROOT, PROCESSES, SUPPORT

PRELUDE = """
    import itertools, json, os, sys, time
    import torch
    import torch.distributed as dist
    import torch.distributed.nn  # its functions keep the group as a default, if it is there by then
    from fastloader import FastLoader, Error
    from fastloader._core.order.distributed import shards
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


def torchrun(tmp_path, world, source, argument=None, options=(), group=True, **variables):
    """Runs ``source`` on ``world`` processes, in a process group unless it makes that itself; returns
    what each rank reported."""
    out = tmp_path / f"out{len(list(tmp_path.iterdir()))}"
    out.mkdir()
    script = out / "script.py"
    script.write_text(
        f"GROUP = {group}\n"
        + textwrap.dedent(PRELUDE)
        + textwrap.dedent(source)
        + "\nfrom group_end import end_group\nend_group(globals())\n"
    )
    env = {key: value for key, value in os.environ.items() if "FASTLOADER" not in key}
    paths = [str(PACKAGE_ROOT), str(SUPPORT), str(PROCESSES), env.get("PYTHONPATH", "")]
    env |= {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    # A store on a free port of this machine.
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--local-addr=127.0.0.1"]
    command += [*options, str(script), str(out), json.dumps(argument)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=HANG, env=env, check=False
    )
    assert done.returncode == 0, done.stderr[:3000] + "..." + done.stderr[-6000:]
    return [json.loads((out / f"{rank}.json").read_text()) for rank in range(world)]
