"""`python -m benchmarks` is the standard benchmark, the one `make bench` runs."""

from __future__ import annotations

import sys

from benchmarks.bench import main

sys.exit(main())
