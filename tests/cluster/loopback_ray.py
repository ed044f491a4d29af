"""Ray's own command for nodes that stay on the loopback interface, as many of them as one likes.

A head does so with SINGLE_MACHINE in the environment, by Ray itself, which then refuses a second node; that is taken out here.

python -m tests.cluster.loopback_ray start ...
"""

from __future__ import annotations

SINGLE_MACHINE = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
"""Every process of Ray with this takes 127.0.0.1 for the address of its machine."""


def main() -> None:
    from ray._private import ray_constants
    from ray.scripts import scripts

    class Allowing:
        """Ray's constants, but that nodes may join. Who asks for the machine's address has others."""

        ENABLE_RAY_CLUSTER = True

        def __getattr__(self, name: str) -> object:
            return getattr(ray_constants, name)

    assert not ray_constants.ENABLE_RAY_CLUSTER
    scripts.ray_constants = Allowing()
    scripts.main()


if __name__ == "__main__":
    main()
