"""What 500 wrong logins a second cost those who are there: ``python -m tests.gates.wrong_logins [--seconds 30] [--rate 500]``.

20 honest clients go round at QoS 1, before the flood and during it. Prints the 99th percentiles of their round trips, how the logins
were answered, how many waited at a time, and the CPU that the gateway took for it, most of it in the thread that checks
passwords, which stands below everything else in priority. On a machine that does something else too nothing but the CPU means anything, so
this is no gate. Ends with 1 if a login was let in.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

import psutil
from argon2 import PasswordHasher

from tests.gates.crowds import p99, round_trips
from tests.gates.gate import running, settings
from tests.needs import ROOT

REFUSED = {0x86, 0x89}


def cpu_s(pid: int) -> float:
    """Of all threads: the loop's, and the one that checks passwords."""
    used = psutil.Process(pid).cpu_times()
    return float(used.user + used.system)


async def measured(rate: float, seconds: float) -> tuple[str, bool]:
    """The line, and whether none was let in."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "passwords"
        file.write_text(f"ann:{PasswordHasher(time_cost=2, memory_cost=19 * 1024, parallelism=1).hash('right')}\n")
        file.chmod(0o600)
        async with running(settings(1, **{"access.password.file": str(file)})) as watched:
            port = watched.broker.port
            (gateway,) = (await watched.status()).pids("gateway")
            await round_trips(port, 3.0)
            began_s = cpu_s(gateway)
            before_ms = p99(await round_trips(port, seconds))
            calm_s = cpu_s(gateway) - began_s
            words = [sys.executable, "-m", "tests.gates.login_load", str(port), str(rate), str(seconds)]
            process = await asyncio.create_subprocess_exec(*words, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
            try:
                began_s = cpu_s(gateway)
                with_ms = p99(await round_trips(port, seconds))
                out, _ = await asyncio.wait_for(process.communicate(), 60)
                used_s = cpu_s(gateway) - began_s - calm_s
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
    told = json.loads(out)
    codes = {int(code): count for code, count in told["codes"].items()}
    said = ", ".join(f"{code:#04x}: {codes[code]}" for code in sorted(codes))
    words = [
        f"{told['sent'] / told['seconds']:.0f} wrong logins a second ({said}, lost {told['lost']}), at most {told['waiting']} at a time",
        f"the slowest {told['late_ms']:.0f} ms",
        f"p99 of others {before_ms:.1f} to {with_ms:.1f} ms",
        f"gateway: {used_s:.1f} s of CPU for it",
        f"the flood itself {told['cpu_s']:.1f} s in {told['seconds']:.0f} s",
    ]
    return "; ".join(words), set(codes) <= REFUSED


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rate", type=float, default=500)
    parser.add_argument("--seconds", type=float, default=30)
    chosen = parser.parse_args()
    line, refused = asyncio.run(measured(chosen.rate, chosen.seconds))
    print(line)
    return 0 if refused else 1


if __name__ == "__main__":
    sys.exit(main())
