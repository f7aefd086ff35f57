"""Is the machine large enough for the sandbox that is asked for? A cap above what the host has caps nothing."""
from __future__ import annotations

from supervisor.sandbox.spec import Limits
from supervisor.types import Layer

_GIB = 1 << 30


def capacity(limits: Limits) -> Layer:
    """The host's CPUs and memory beside the caps, for ``doctor``. Never required: the caps below it still hold."""
    import psutil  # here, not above: sessions do without it

    memory = psutil.virtual_memory()
    cpus = psutil.cpu_count() or 1
    fact = f"{cpus} CPUs, {memory.total / _GIB:.1f} GiB of memory, {memory.available / _GIB:.1f} GiB of it available"
    if memory.total >= limits.memory:
        return Layer("host capacity", True, fact)
    return Layer(
        "host capacity", False, f"{fact}: less than the sandbox's cap of {limits.memory / _GIB:.1f} GiB",
        "set `limits: {memory: …}` in the policy below what the host has",
    )
