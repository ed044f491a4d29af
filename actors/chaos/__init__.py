"""Faults on purpose: `holdfast chaos`.  Nothing of it is loaded by a process of a broker that has not `chaos.enabled`.

The command kills and stops processes; all other faults are files in the run directory, which the processes look at.  Every fault has a
deadline in its file: it ends by itself, whatever became of the command.
"""
