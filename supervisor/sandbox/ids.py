"""Who a sandbox's processes are, outside and inside: a pure decision.

Two rules. Nothing in a sandbox is the host's uid 0. And ``id -u`` inside names the owner that the files of the working copy
show, because git refuses a repository of somebody else and re-reads every file whose owner looks changed.

An ordinary user without a range of subordinate ids can map one id only, its own; init and the commands then share it. Root
can map any: each sandbox gets two host ids of its own, far above those of accounts and of subordinate ranges, one for init
and one for the commands, and the lower layer is idmapped from its owner to the command's id.

Sources: user_namespaces(7) "User and group ID mappings"; mount_setattr(2) "ID-mapped mounts".
"""
from __future__ import annotations

from dataclasses import dataclass, replace

FIRST_HOST_ID = 1_879_048_192  # 0x70000000: above accounts, systemd's dynamic users and containers, and default subuid ranges
SLOTS = 4096  # sandboxes of one machine at a time, two ids each
HOLDER_ID = FIRST_HOST_ID + 2 * SLOTS  # of the processes that hold templates; its files are nobody's in every sandbox
END_HOST_ID = HOLDER_ID + 1  # the first that is not ours
INNER_ACCOUNT = 1000  # what root's own repositories look like from inside
INNER_INIT = 65533  # beside nobody (65534), which stands for whatever is not mapped


@dataclass(frozen=True, slots=True)
class IdPlan:
    """Host and inner ids of the commands and of init, and the lines of the maps ("inner outer count")."""

    command_host_uid: int
    command_host_gid: int
    command_uid: int
    command_gid: int
    init_host_uid: int
    init_host_gid: int
    init_uid: int
    init_gid: int
    uid_map: bytes
    gid_map: bytes
    idmapped: bool  # the lower layer is an idmapped mount from its on-disk owner to the command's host id
    setgroups_denied: bool

    def inside(self) -> IdPlan:
        """The same ids with nothing of the host: what a plan depends on, and the same for every slot."""
        return replace(
            self, command_host_uid=0, command_host_gid=0, init_host_uid=0, init_host_gid=0, uid_map=b"", gid_map=b""
        )

    @property
    def shared(self) -> bool:
        """Init and the commands have the same uid."""
        return self.command_uid == self.init_uid


def ordinary(uid: int, gid: int) -> IdPlan:
    """The plan of a caller who may map itself alone. A root that maps nothing else looks like ``INNER_ACCOUNT`` inside."""
    inner_uid, inner_gid = uid or INNER_ACCOUNT, gid or INNER_ACCOUNT
    return IdPlan(
        command_host_uid=uid,
        command_host_gid=gid,
        command_uid=inner_uid,
        command_gid=inner_gid,
        init_host_uid=uid,
        init_host_gid=gid,
        init_uid=inner_uid,
        init_gid=inner_gid,
        uid_map=_line(inner_uid, uid),
        gid_map=_line(inner_gid, gid),
        idmapped=False,
        setgroups_denied=True,
    )


def privileged(slot: int, owner_uid: int, owner_gid: int, idmap_offered: bool) -> IdPlan:
    """The plan of root for a project that ``owner_uid``:``owner_gid`` own on disk.

    Where idmapped mounts are not offered, the commands act as the owner when that is not root; when it is, they have ids of
    their own and the caller has to make a copy of the project for them (``idmapped`` false, host id ≠ owner).
    """
    if not 0 <= slot < SLOTS:
        raise ValueError(f"slot {slot} out of range")
    command_host, init_host = FIRST_HOST_ID + 2 * slot, FIRST_HOST_ID + 2 * slot + 1
    as_owner = not idmap_offered and owner_uid != 0
    host_uid = owner_uid if as_owner else command_host
    host_gid = owner_gid if as_owner and owner_gid != 0 else command_host
    inner_uid, inner_gid = owner_uid or INNER_ACCOUNT, owner_gid or INNER_ACCOUNT
    init_uid = INNER_INIT if inner_uid != INNER_INIT else INNER_INIT - 1
    init_gid = INNER_INIT if inner_gid != INNER_INIT else INNER_INIT - 1
    return IdPlan(
        command_host_uid=host_uid,
        command_host_gid=host_gid,
        command_uid=inner_uid,
        command_gid=inner_gid,
        init_host_uid=init_host,
        init_host_gid=init_host,
        init_uid=init_uid,
        init_gid=init_gid,
        uid_map=_line(inner_uid, host_uid) + _line(init_uid, init_host),
        gid_map=_line(inner_gid, host_gid) + _line(init_gid, init_host),
        idmapped=idmap_offered,
        setgroups_denied=False,
    )


def holding(privileged: bool, uid: int, gid: int) -> IdPlan:
    """The plan of a process that holds a template, and runs no commands."""
    if not privileged:
        return ordinary(uid, gid)
    line = _line(INNER_INIT, HOLDER_ID)
    return IdPlan(
        command_host_uid=HOLDER_ID,
        command_host_gid=HOLDER_ID,
        command_uid=INNER_INIT,
        command_gid=INNER_INIT,
        init_host_uid=HOLDER_ID,
        init_host_gid=HOLDER_ID,
        init_uid=INNER_INIT,
        init_gid=INNER_INIT,
        uid_map=line,
        gid_map=line,
        idmapped=False,
        setgroups_denied=False,
    )


def _line(inner: int, outer: int) -> bytes:
    return b"%d %d 1\n" % (inner, outer)
