"""Inside the test machine: run the commands that come over the serial port, one after the other, and answer each.

A request is one line of JSON, and so is its answer (``support.vm`` is the other end). A command starts in the control group
that the request names, made if need be, as the user that it names; nothing else is prepared for it.
"""
from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

GROUPS = Path("/sys/fs/cgroup")


def carry_out(request: dict[str, Any]) -> dict[str, Any]:
    """Run one command to its end, or to its time-out (status 124, with what it had written)."""
    group = GROUPS / request["group"]
    group.mkdir(parents=True, exist_ok=True)
    procs = os.open(group / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
    uid = request["uid"]
    try:
        process = subprocess.Popen(
            request["argv"],
            cwd=request["cwd"],
            env=request["env"],
            user=uid,
            group=uid,
            extra_groups=[],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: os.write(procs, b"0"),  # the identity is changed after this
            start_new_session=True,
        )
    finally:
        os.close(procs)
    try:
        out, err = process.communicate(timeout=request["timeout"])
        code = process.returncode
    except subprocess.TimeoutExpired as late:
        process.kill()
        out, err, code = late.stdout or b"", (late.stderr or b"") + b"\n[killed: its time was over]", 124
    return {"code": code, "out": base64.b64encode(out).decode(), "err": base64.b64encode(err).decode()}


def port() -> str:
    """The device of the serial port that ``support.vm`` named."""
    for entry in Path("/sys/class/virtio-ports").iterdir():
        if (entry / "name").read_text().strip() == "commands":
            return f"/dev/{entry.name}"
    raise FileNotFoundError("no port named commands")


def main() -> None:
    """Serve until the other end is gone; the machine is then switched off."""
    with open(port(), "r+b", buffering=0) as channel:
        pending = b""
        channel.write(b'{"ready": true}\n')
        while data := channel.read(65536):
            pending += data
            while b"\n" in pending:
                line, _, pending = pending.partition(b"\n")
                try:
                    answer = carry_out(json.loads(line))
                except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
                    answer = {"failed": f"{type(error).__name__}: {error}"}
                written = json.dumps(answer).encode() + b"\n"
                while written:
                    written = written[channel.write(written) :]


if __name__ == "__main__":
    main()
