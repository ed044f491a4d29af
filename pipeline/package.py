"""The zip of `holdfast_spark` that executors import; `python -m pipeline.package FILE.zip` writes one for `spark-submit --py-files`.

The same files give the same bytes, so that a name made of their checksum says what is in it, and two sessions share one.
"""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from pathlib import Path

import holdfast_spark
from pipeline.cache import kept

# The oldest that a zip can say. Times of files would make every build another one.
_LONG_AGO = (1980, 1, 1, 0, 0, 0)


def zipped() -> bytes:
    """The package as it is imported here."""
    package = Path(next(iter(holdfast_spark.__path__)))
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(package.rglob("*.py")):
            entry = zipfile.ZipInfo(f"{package.name}/{path.relative_to(package).as_posix()}", _LONG_AGO)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, path.read_bytes())
    return whole.getvalue()


def packaged() -> Path:
    """A file with the zip, made when it is not there yet."""
    content = zipped()
    return kept(f"holdfast_spark-{hashlib.sha256(content).hexdigest()[:16]}.zip", content)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m pipeline.package FILE.zip")
    Path(sys.argv[1]).write_bytes(zipped())
