"""A Spark cluster of its own on 127.0.0.1: a master and a worker, from the installed pyspark, as an operator starts them.

They are processes of the test, in a group of their own, and end with it: executors too, which are children of the worker.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from pipeline.java import find_java

LOOPBACK = "127.0.0.1"
WITHIN_S = 120
# Four JVMs beside each other, each for half a minute: none of them gets to where compiling well would pay off.
LIGHT = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Cluster:
    """`worker_environment`: what the worker's operator has set besides; executors inherit it."""

    def __init__(self, directory: Path, worker_environment: Mapping[str, str]) -> None:
        self.home = Path(pyspark.__file__).parent
        self.environment = os.environ | {
            "JAVA_HOME": str(find_java(os.environ).home),
            "SPARK_HOME": str(self.home),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": "256m",
            # The REST server would have a port of its own, the same for every master of this machine.
            "SPARK_DAEMON_JAVA_OPTS": f"{LIGHT} -Dspark.master.rest.enabled=false",
            "PYSPARK_PYTHON": sys.executable,
        }
        self.url = ""
        self._directory = directory
        self._worker_environment = worker_environment
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        try:
            self.url = self._start("master", {}, "--port", "0", found=r"Starting Spark master at (spark://127\.0\.0\.1:\d+)")
            work = str(self._directory / "work")
            words = ("--port", "0", "--cores", "2", "--memory", "1g", "--work-dir", work, self.url)
            self._start("worker", self._worker_environment, *words, found=r"Successfully registered with (master)")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def submit(
        self, script: Path, package: Path, *words: str, environment: Mapping[str, str], within_s: float
    ) -> subprocess.CompletedProcess[str]:
        """As by hand: `spark-submit --py-files`, the driver beside it."""
        settings = {
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": LIGHT,
            "spark.executor.extraJavaOptions": LIGHT,
            "spark.ui.enabled": "false",
        }
        command = [str(self.home / "bin" / "spark-submit"), "--master", self.url, "--py-files", str(package)]
        command += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        return subprocess.run(
            [*command, str(script), *words],
            cwd=self._directory,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=within_s,
            check=False,
        )

    def story(self) -> str:
        """What they wrote, for a failed test: their own logs and those of executors."""
        files = [*self._directory.glob("*.log"), *self._directory.glob("work/*/*/stderr")]
        return "\n".join(f"== {path.name}\n{path.read_text(errors='replace')[-4000:]}" for path in files)

    def _start(self, role: str, environment: Mapping[str, str], *words: str, found: str) -> str:
        """What the pattern finds in its log, once it does."""
        log = self._directory / f"{role}.log"
        command = [str(self.home / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}.{role.capitalize()}"]
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, "--host", LOOPBACK, "--webui-port", "0", *words],
                cwd=self._directory,
                env={**self.environment, **environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._processes.append(process)
        deadline = time.monotonic() + WITHIN_S
        while (said := re.search(found, log.read_text(errors="replace"))) is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the {role} does not come up:\n{self.story()}")
            time.sleep(0.1)
        return said[1]

    def _end(self) -> None:
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
