"""`holdfast up` with the servers of tests.cluster.echoing; the rest is the command's own code.

python -m tests.cluster.starting (detach|foreground) SECONDS DATA_DIR PORT [KEY=VALUE...]
"""

from __future__ import annotations

import dataclasses
import sys

from cli.up import become_launcher, launch_detached, launch_spec
from config.load import load


def main() -> None:
    manner, seconds, data_dir, port, *sets = sys.argv[1:]
    config = load(
        sets=["profile=spread", "ray.dashboard=false", "admin.enable=false", *sets], data_dir=data_dir, port=int(port), environ={}
    )
    spec = launch_spec(config, cores=2, start_within=float(seconds), table="tests.cluster.echoing:TABLE")
    if manner == "detach":
        sys.exit(launch_detached(spec))
    become_launcher(dataclasses.replace(spec, start_within=None))


if __name__ == "__main__":
    main()
