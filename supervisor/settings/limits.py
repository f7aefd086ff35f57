"""Every number with a default, a range and a reason: one table for the policy, the configuration and the documentation.

Ranges exist because every session has a planned end (SE-01): no spelling of a bound makes it endless. Out of range is
refused, not clipped (CF-10, CF-11).
"""
from __future__ import annotations

from dataclasses import dataclass

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Range:
    """A whole number with its default, inclusive."""

    default: int
    low: int
    high: int


# Bounds of a session and of a command (SE-08 … SE-15, CB-02, CB-03, LD-12, DG-18 … DG-20, O-19).
ACTIONS = Range(150, 1, 100_000)
MINUTES = Range(45, 1, 7 * 24 * 60)
EXTENSIONS = Range(5, 0, 100)
LOOP_THRESHOLD = Range(3, 1, 1_000)
COMMAND_SECONDS = Range(600, 1, 24 * 3600)
COMMAND_OUTPUT = Range(10 << 20, 1, GIB)
SUBAGENT_DEPTH = Range(3, 1, 16)
SUBAGENT_PER_SESSION = Range(200, 1, 10_000)
SUBAGENT_CONCURRENT = Range(20, 1, 1_000)
MODEL_BYTES = Range(32 << 20, 1, 1 << 40)  # the policy's only (O-03)
COMMANDS = Range(150, 1, 100_000)  # the policy's only (O-03)

EXTENSION_ACTIONS = 50  # what one extension adds (SE-15)
EXTENSION_MINUTES = 15

# Caps of the sandbox (O-03, SB-20 … SB-23).
MEMORY = Range(4 * GIB, 64 << 20, 1 << 50)
CPUS = Range(2, 1, 4096)
PROCESSES = Range(512, 8, 1 << 22)
CPU_SECONDS = Range(1800, 1, 7 * 24 * 3600)
DISK = Range(4 * GIB, 1 << 20, 1 << 50)
INODES = Range(500_000, 1_000, 1 << 32)
SANDBOX_MINUTES = Range(45, 1, 7 * 24 * 60)
OPEN_FILES = Range(4096, 64, 1 << 20)
FILE_SIZE = Range(4 * GIB, 1 << 10, 1 << 50)

# Thresholds of the diff (O-03, TF-06) and of the model's context (LC-19).
LARGE_FILE = Range(512 << 10, 1, GIB)
LARGE_DIFF = Range(2 << 20, 1, GIB)
COMPACTION_PERCENT = Range(80, 10, 95)
