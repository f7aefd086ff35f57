"""A host and a draft of a sandbox as values, for tests of what is decided without a kernel."""
from __future__ import annotations

from profiles.load import shipped
from supervisor.sandbox.groups import CgroupHost
from supervisor.sandbox.ids import ordinary
from supervisor.sandbox.machine import Entry, HostFacts, HostView
from supervisor.sandbox.plan import Draft, Layers
from supervisor.sandbox.spec import Limits

NONE = 2**64 - 1
HOST = HostFacts(
    uid=1000, gid=1000, privileged=False, machine="x86_64", kernel="6.1", namespaces_missing=(), switches=(), proc_covered=(),
    seccomp=True, landlock_abi=7, apparmor=False, cgroups=CgroupHost(0), hard_limits=tuple((n, NONE) for n in range(16)),
    view=HostView(
        trees=(Entry(b"/bin", target=b"usr/bin"), Entry(b"/usr", b"/usr")),
        etc=(Entry(b"/etc/ssl/certs", b"/etc/ssl/certs"), Entry(b"/etc/timezone", content=b"UTC\n")),
        devices=(b"/dev/null",), masked_files=(b"/proc/keys",), masked_directories=(b"/proc/acpi",), read_only=(b"/proc/sys",),
    ),
    layers=(),
)  # fmt: skip
DRAFT = Draft(
    host=HOST, profile=shipped(), ids=ordinary(1000, 1000), limits=Limits(), copies=(Layers(b"/workspace", b"upper", b"work"),),
    files=((b"/home/agent/.gitconfig", b"x"),), loopback=False, joins=0, watched=True, detached=False,
)  # fmt: skip
