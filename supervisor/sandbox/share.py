"""The share of the CPUs where no control group throttles: the sandbox keeps to as many CPUs as it may use.

Init is put on that many of the supervisor's CPUs before its first command; every process of the sandbox inherits that, and its
seccomp filter refuses the one call that would widen it. Several sandboxes are spread over the machine by their process ids.
"""
from __future__ import annotations

import contextlib
import functools
import math
import os
from dataclasses import replace

from profiles.model import Profile
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.spec import Limits

_WIDENS = "sched_setaffinity"


def kept(host: HostFacts, limits: Limits) -> bool:
    """Whether the share is kept this way: no group throttles, and the machine has more CPUs than the sandbox may use."""
    return host.cgroups.base("cpu") is None and _count(limits) < len(os.sched_getaffinity(0))


@functools.lru_cache(16)
def profile_of(profile: Profile) -> Profile:
    """The profile without the call that would widen the share. The same value for the same profile."""
    seccomp = profile.seccomp
    return replace(
        profile,
        seccomp=replace(
            seccomp,
            allow=tuple(call for call in seccomp.allow if call != _WIDENS),
            allow_if=tuple(rule for rule in seccomp.allow_if if rule.call != _WIDENS),
        ),
    )


def keep(pid: int, limits: Limits) -> None:
    """Put init on its CPUs, before its first command. Raises OSError where the kernel refuses."""
    have = sorted(os.sched_getaffinity(0))
    count = _count(limits)
    first = pid * count % len(have)
    with contextlib.suppress(ProcessLookupError):  # it ended, which its channel says
        os.sched_setaffinity(pid, (have * 2)[first : first + count])


def _count(limits: Limits) -> int:
    return max(1, math.ceil(limits.cpus))
