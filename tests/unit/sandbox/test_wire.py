"""Both halves of the protocol say the same: supervisor/sandbox/wire.py and native/init/protocol.h."""
from __future__ import annotations

import dataclasses
import inspect
import re
import struct
import subprocess
from pathlib import Path

import pytest

from supervisor.errors import ChannelBroken, InternalError
from supervisor.sandbox import ops, wire
from support import needs

HEADER = Path(__file__).parents[3] / "native/init/protocol.h"

LAYOUTS = {
    "plan_header": (wire.HEADER, "magic version size ops fds arena arena_size"),
    "plan_op": (
        wire.OP,
        "kind flags fd[0] fd[1] fd[2] mode uid gid path path_length data data_length number[0] number[1] number[2]",
    ),
    "request": (wire.REQUEST, "kind flags id argument size"),
    "run": (wire.RUN, "argc envc limits zero"),
    "run_limit": (wire.RUN_LIMIT, "resource zero soft hard"),
    "reply": (wire.REPLY, "kind code id error detail number[0] number[1] number[2]"),
}
CONSTANTS = {
    "PROTOCOL_VERSION": wire.VERSION,
    "NOTHING": wire.NOTHING,
    "INLINE_MAX": wire.INLINE_MAX,
    "PAYLOAD_MAX": wire.PAYLOAD_MAX,
    "PLAN_OPS_MAX": wire.OPS_MAX,
    "PLAN_FDS_MAX": wire.FDS_MAX,
    "PATH_LENGTH_MAX": wire.PATH_MAX,
    "ARGC_MAX": wire.ARGC_MAX,
    "RLIMITS_MAX": wire.RLIMITS_MAX,
    "COMMANDS_MAX": wire.COMMANDS_MAX,
    "IN_MEMFD": wire.IN_MEMFD,
    "ANNOUNCE": wire.ANNOUNCE,
    "MORE": wire.MORE,
    "FLAG_RO": ops.RO,
    "FLAG_NOSUID": ops.NOSUID,
    "FLAG_NODEV": ops.NODEV,
    "FLAG_NOEXEC": ops.NOEXEC,
    "FLAG_RECURSIVE": ops.RECURSIVE,
    "FLAG_OPTIONAL": ops.OPTIONAL,
    "FLAG_CLEAR_GROUPS": wire.CLEAR_GROUPS,
    "FLAG_USERXATTR": wire.USERXATTR,
    "FLAG_VOLATILE": wire.VOLATILE,
    "FLAG_OUTSIDE": ops.OUTSIDE,
    **{f"REQUEST_{r.name}": r.value for r in wire.Request},
    **{f"STAGE_{s.name}": s.value for s in wire.Stage},
    **{f"FAULT_{f.name}": f.value for f in wire.PlanFault},
}
REPLIES = {
    "READY": wire.Ready, "FAILED": wire.Failed, "STARTED": wire.Started, "RUN_FAILED": wire.RunFailed, "EXIT": wire.Exited,
    "GONE": wire.Gone, "KILLED": wire.Killed, "SIGNALLED": wire.Signalled, "FD": wire.Handed, "ERROR": wire.Refused,
}  # fmt: skip


def operations() -> list[type[ops.Op]]:
    return [c for _, c in inspect.getmembers(ops, inspect.isclass) if issubclass(c, ops.Op) and c is not ops.Op]


def c_name(kind: type[ops.Op]) -> str:
    return "OP_" + re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).upper()


def offsets(layout: struct.Struct) -> list[int]:
    """Offset of each field of a format without padding."""
    found, at = [], 0
    for count, code in re.findall(r"(\d*)([a-zA-Z])", layout.format):
        for _ in range(1 if code == "s" else int(count or 1)):
            found.append(at)
            at += struct.calcsize("=" + (count if code == "s" else "") + code)
    return found


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What the C compiler makes of the header: every expression of interest and its value."""
    needs.require("cc")
    wanted = [*CONSTANTS, *(f"REPLY_{name}" for name in REPLIES), *(c_name(k) for k in operations()), "OP_KINDS"]
    for name, (_, fields) in LAYOUTS.items():
        wanted += [f"sizeof(struct {name})", *(f"offsetof(struct {name}, {field})" for field in fields.split())]
    directory = tmp_path_factory.mktemp("protocol")
    lines = "\n".join(f'printf("%s\\t%lld\\n", "{w}", (long long)({w}));' for w in wanted)
    source = f'#include <stddef.h>\n#include <stdio.h>\n#include "{HEADER}"\nint main(void) {{ {lines} return 0; }}\n'
    (directory / "numbers.c").write_text(source)
    subprocess.run(["cc", "-o", directory / "numbers", directory / "numbers.c"], check=True)
    out = subprocess.run([directory / "numbers"], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split("\t") for line in out.splitlines())}


def test_constants_are_those_of_the_header(numbers: dict[str, int]) -> None:
    assert {name: numbers[name] for name in CONSTANTS} == CONSTANTS


def test_layouts_are_those_of_the_header(numbers: dict[str, int]) -> None:
    for name, (layout, fields) in LAYOUTS.items():
        assert numbers[f"sizeof(struct {name})"] == layout.size, name
        assert [numbers[f"offsetof(struct {name}, {f})"] for f in fields.split()] == offsets(layout), name


def test_every_operation_has_the_number_of_the_header(numbers: dict[str, int]) -> None:
    kinds = operations()
    assert {c_name(k): numbers[c_name(k)] for k in kinds} == {c_name(k): k.KIND for k in kinds}
    assert sorted(k.KIND for k in kinds) == list(range(1, numbers["OP_KINDS"]))


def test_every_reply_is_decoded(numbers: dict[str, int]) -> None:
    for name, kind in REPLIES.items():
        record = wire.REPLY.pack(numbers[f"REPLY_{name}"], 1, 7, 5, 3, 1, 2, 3)
        assert type(wire.decode_reply(record)) is kind
    assert set(REPLIES.values()) == set(wire.Reply.__args__)


def test_a_failure_before_the_first_step_has_no_step() -> None:
    record = wire.REPLY.pack(2, wire.NOTHING, 0, 71, 0, wire.PlanFault.PATH, 0, 0)
    assert wire.decode_reply(record) == wire.Failed(None, 0, 71, wire.PlanFault.PATH)


@pytest.mark.parametrize(
    "record",
    [b"", b"x" * (wire.REPLY.size - 1), b"x" * (wire.REPLY.size + 1), wire.REPLY.pack(99, 0, 0, 0, 0, 0, 0, 0),
     wire.REPLY.pack(4, 99, 0, 0, 0, 0, 0, 0), wire.REPLY.pack(9, 99, 0, 0, 0, 0, 0, 0),
     wire.REPLY.pack(2, 0, 0, 0, 0, 99, 0, 0)],
)  # fmt: skip
def test_a_record_that_is_none_breaks_the_channel(record: bytes) -> None:
    with pytest.raises(ChannelBroken):
        wire.decode_reply(record)


@pytest.mark.parametrize(
    ("argv", "environment", "cwd"),
    [([], [], b"."), ([b"a\0b"], [], b"."), ([b"a"], [(b"A", b"x\0")], b"."), ([b"a"], [], b"x\0y"),
     ([b"a"] * 65536, [(b"A", b"b")], b"."), ([b"a" * (3 << 20)], [], b".")],
)  # fmt: skip
def test_what_no_execve_takes_is_refused_here(argv: list[bytes], environment: list[tuple[bytes, bytes]], cwd: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        wire.encode_run(argv, environment, cwd)


def test_a_run_is_its_header_its_limits_and_its_strings() -> None:
    payload = wire.encode_run([b"/bin/a", b""], [(b"A", b"1")], b"", [(7, 1, 2)])
    assert payload == wire.RUN.pack(2, 1, 1, 0) + wire.RUN_LIMIT.pack(7, 0, 1, 2) + b".\0/bin/a\0\0A=1\0"


def test_equal_texts_share_their_place_in_the_arena() -> None:
    one = wire.encode_plan([ops.Bind(b"/usr", b"/usr", ops.RO)], 0)
    assert one.count(b"/usr\0") == 1


@pytest.mark.parametrize(
    ("plan", "fds"),
    [([ops.Dir(b"/a", mode=-1)], 0), ([ops.Rlimit(1, 1 << 64, 0)], 0), ([ops.Pivot()] * 4097, 0), ([], 201),
     ([ops.File(b"/a", b"x" * (3 << 20))], 0), ([ops.Op()], 0)],
)  # fmt: skip
def test_a_plan_that_the_protocol_cannot_carry_is_a_bug(plan: list[ops.Op], fds: int) -> None:
    with pytest.raises(InternalError):
        wire.encode_plan(plan, fds)


def test_values_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        wire.Gone(1, True).id = 2  # type: ignore[misc]
