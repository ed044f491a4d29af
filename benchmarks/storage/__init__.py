"""`make bench-storage`: what each storage layout costs, on one store without a broker around it.

shapes are the topics; worker is a process with one store in one layout; rounds drives workers of two or more layouts in turns, so
that whatever else the machine does hits all of them alike; table writes docs/layouts.md.
"""

from __future__ import annotations
