"""The door of settings: which files are read, whose they must be, and the environment, once per process (O-01, O-02, CF-12)."""
from __future__ import annotations

import errno
import functools
import hashlib
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path

from supervisor.errors import Fault, PolicyError, SettingError
from supervisor.settings import starter
from supervisor.settings.bounds import EXECUTION_VARIABLE, VARIABLES, Bounds, compute_bounds
from supervisor.settings.config import Config, ModelConfig, parse_config
from supervisor.settings.document import MAX_BYTES
from supervisor.settings.parse import command_sets, parse_policy
from supervisor.settings.policy import WITHOUT_EFFECT, Policy, PolicyFile, Section, resolve, restrict

NO_POLICY_REMEDY = "write one for this repository with `lemni policy init`"


@dataclass(frozen=True, slots=True)
class SettingFiles:
    """Where the four files stand. Only ``standard`` is what a user gets; tests name their own."""

    admin_policy: Path
    user_policy: Path
    host_config: Path
    user_config: Path

    @classmethod
    def standard(cls, home: Path | None = None) -> SettingFiles:
        """``/etc/lemniscate`` and ``~/.lemniscate``. ``home`` defaults to HOME, then to the account's directory."""
        own = (home or home_directory()) / ".lemniscate"
        etc = Path("/etc/lemniscate")
        return cls(etc / "policy.yaml", own / "policy.yaml", etc / "config.yaml", own / "config.yaml")


def home_directory() -> Path:
    """HOME where it is an absolute path, else what the account's record says."""
    given = os.environ.get("HOME", "")
    return Path(given) if given.startswith("/") else Path(pwd.getpwuid(os.getuid()).pw_dir)


@functools.cache
def process_environment() -> Mapping[str, str]:
    """The variables of the product as they were at the first session of this process, kept for its life (CF-12)."""
    return {name: os.environ[name] for name in (*VARIABLES, EXECUTION_VARIABLE) if name in os.environ}


def load_bounds(config: Config, policy: Policy, environment: Mapping[str, str] | None = None) -> Bounds:
    """The bounds in force; see ``compute_bounds`` for the errors."""
    return compute_bounds(process_environment() if environment is None else environment, config, policy)


def load_config(files: SettingFiles) -> Config:
    """The user's configuration over the host's. Missing files are empty; SettingError for what cannot be read."""
    host = _config_file(files.host_config, frozenset({0}))
    return _config_file(files.user_config, frozenset({0, os.getuid()})).over(host)


def load_policy(files: SettingFiles, root: bytes, user: str) -> Policy:
    """The policy of the project at ``root`` for ``user``.

    No file: every tool asks. The administrator's file must be root's and not writable by others; the user's file serves
    alone where there is none, and otherwise only restricts. PolicyError for anything unreadable, invalid or untrusted: the
    caller opens nothing then.
    """
    sets = command_sets()
    path = os.fsdecode(root)
    admin = read_policy(files.admin_policy, frozenset({0}), Fault.ADMINISTRATOR)
    own = read_own_policy(files)
    first = admin or own
    if first is None:
        return resolve(Section(), origin="none", sha256=hashlib.sha256(b"").hexdigest(), project=None, sets=sets)
    with _whose(Fault.ADMINISTRATOR if admin else Fault.USER):
        section, project = first.select(path, user)
        policy = resolve(
            section, origin="administrator" if admin else "user", sha256=first.sha256, project=project, sets=sets
        )
    if admin and own:
        with _whose(Fault.USER):
            mine, _ = own.select(path, user)
            policy = restrict(policy, mine, source=own.source, sets=sets)
        both = hashlib.sha256(bytes.fromhex(admin.sha256) + bytes.fromhex(own.sha256)).hexdigest()
        policy = replace(policy, sha256=both)
    return policy


def read_policy(path: Path, owners: frozenset[int], fault: Fault) -> PolicyFile | None:
    """One policy file, or None where there is none. ``fault``: who mends what is wrong with it."""
    with _whose(fault):
        data = _trusted(path, owners, PolicyError, "policy_untrusted")
        return None if data is None else parse_policy(data, str(path))


def read_own_policy(files: SettingFiles) -> PolicyFile | None:
    """The user's own policy file: theirs to mend, also where the user is root."""
    return read_policy(files.user_policy, frozenset({0, os.getuid()}), Fault.USER)


@contextmanager
def _whose(fault: Fault) -> Iterator[None]:
    """What is wrong with a policy meanwhile is this party's to mend."""
    try:
        yield
    except PolicyError as wrong:
        wrong.fault = fault
        raise


def check_policy(path: Path) -> None:
    """Read a policy file of anyone's as a policy; PolicyError says what is wrong with it."""
    try:
        data = path.read_bytes()
    except OSError as failed:
        raise PolicyError(
            "read the policy", on=str(path), errno=failed.errno, fault=Fault.USER,
            remedy="lemni policy init writes one" if failed.errno == errno.ENOENT else None,
        ) from None
    try:
        parse_policy(data, str(path))
    except PolicyError as wrong:
        wrong.fault = Fault.USER  # who checks a file is about to mend it, whoever's it will be
        raise


def starter_policy(root: bytes) -> str:
    """The commented policy file for a repository, its test commands recognised."""
    return starter.starter_text(starter.project_entry(os.fsdecode(root), _top_level(root)))


def write_starter(files: SettingFiles, root: bytes) -> Path:
    """Write the starter policy, or add this repository to the user's own policy; returns the file written.

    PolicyError: ``policy_exists`` when the repository is listed there already, ``policy_managed`` when an administrator's
    file decides, and everything that makes the existing file unreadable.
    """
    target = files.user_policy
    if files.admin_policy.exists():
        raise PolicyError(
            "write a starter policy", on=str(files.admin_policy), code="policy_managed",
            why="this machine has an administrator's policy: a user's file could only restrict it",
        )
    path = os.fsdecode(root)
    if any(not char.isprintable() for char in path):
        raise PolicyError("write a starter policy", on=repr(path), why="the path has characters that YAML cannot hold")
    entry = starter.project_entry(path, _top_level(root))
    present = read_own_policy(files)
    if present is None:
        text = starter.starter_text(entry)
    else:
        if any(path in project.roots for project in present.projects):
            raise PolicyError(
                "write a starter policy", on=str(target), why=f"{path} is in it already", code="policy_exists", fault=Fault.USER
            )
        text = target.read_text("utf-8").rstrip("\n") + "\n" + entry
        _check_appended(text, target, present)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _replace(target, text.encode("utf-8"))
    return target


def without_effect(key: str) -> bool:
    """Whether a key of ``describe_policy`` is read and checked, and decides nothing in this version."""
    return key == "budgets.extensions" or key.partition(".")[0] in WITHOUT_EFFECT


def describe_policy(policy: Policy, bounds: Bounds) -> list[tuple[str, str]]:
    """What is in force, as (key, value) in the policy's spelling, every default included (O-03)."""
    lines = [("origin", policy.origin), ("sha256", policy.sha256), ("project", policy.project or "-")]
    lines += [(f"tools.{name}", policy.tool(name).word) for name in dict(policy.tools)]
    lines += [("tools.*", policy.other_tools.word)]
    for index, listed in enumerate(policy.commands):
        key = "commands" if index == 0 else "commands (the user's restriction)"
        lines += [(key, pattern.text) for pattern in listed] or [(key, "-")]
    lines += [
        ("sensitiveTools", ", ".join(sorted(policy.sensitive_tools)) or "-"),
        ("rememberApprovals", str(policy.remember_approvals).lower()),
        ("redirections", "allow" if policy.redirections else "ask"),
        ("contextExclusions", ", ".join(policy.context_exclusions) or "the built-in ones"),
        ("history", policy.history),
    ]
    lines += [(f"thirdPartyFiles.{name}", "validate" if value.validate else "forbid") for name, value in policy.third_party]
    in_force = {
        "actions": bounds.actions, "minutes": bounds.minutes, "extensions": bounds.extensions,
        "modelBytes": bounds.model_bytes, "commands": bounds.commands,
    }
    lines += [(f"budgets.{name}", str(value)) for name, value in in_force.items()]
    lines += [(f"limits.{_camel(f.name)}", _limit(getattr(policy.limits, f.name))) for f in fields(policy.limits)]
    lines += [
        ("limitsEnforcement", "required" if policy.limits_required else "auto"),
        ("largeFile", str(policy.large_file)),
        ("largeDiff", str(policy.large_diff)),
        ("compactionPercent", str(policy.compaction_percent)),
        ("profile", policy.profile),
        ("apparmor", policy.apparmor),
        ("execution", ", ".join(policy.execution)),
        ("environment", ", ".join(name for name, _ in policy.environment) or "-"),
        ("toolLoopThreshold", str(bounds.loop_threshold)),
        ("toolLoopDetection", str(bounds.loop_detection).lower()),
        ("commandSeconds", str(bounds.command_seconds)),
        ("commandOutputBytes", str(bounds.command_output_bytes)),
    ]
    return lines


def _limit(value: int | None) -> str:
    """None: the duration alone, which is then the session's."""
    return "as long as the session, and 4 minutes" if value is None else str(value)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _config_file(path: Path, owners: frozenset[int]) -> Config:
    data = _trusted(path, owners, SettingError, "config_untrusted")
    if data is None:
        return Config()
    config = parse_config(data, str(path))
    return replace(config, models=tuple(_absolute(model, path.parent) for model in config.models))


def _absolute(model: ModelConfig, folder: Path) -> ModelConfig:
    """Paths of a model entry: ``~/`` is the home, anything else relative belongs to the configuration's folder."""

    def resolved(text: str | None) -> str | None:
        if text is None:
            return None
        return str(home_directory() / text[2:]) if text.startswith("~/") else str(folder / text)

    return replace(model, api_key_file=resolved(model.api_key_file), script=resolved(model.script))


def _trusted(path: Path, owners: frozenset[int], error: type[SettingError], untrusted: str) -> bytes | None:
    """The bytes of a file that one of ``owners`` holds and nobody else can write; None where there is no file.

    Checked on the opened descriptor, so what is read is what was checked. A file whose folder others can write could be
    replaced between two sessions: refused too.
    """
    doing = "read the policy" if error is PolicyError else "read the configuration"
    try:
        # NONBLOCK: a FIFO in the file's place must not hang the program; it is refused below.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as failed:
        # A link to nowhere is a file that was meant to be there: not the same as none.
        if failed.errno in (errno.ENOENT, errno.ENOTDIR) and not path.is_symlink():
            return None
        raise error(doing, on=str(path), errno=failed.errno) from None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise error(doing, on=str(path), why="not a regular file")
        with open(fd, "rb", buffering=0, closefd=False) as file:
            for what, status in (("it", os.fstat(fd)), ("its folder", os.stat(path.parent))):
                if status.st_uid not in owners:
                    names = " or ".join(f"uid {uid}" for uid in sorted(owners))
                    why = f"{what} belongs to uid {status.st_uid}, not to {names}"
                    raise error(doing, on=str(path), why=why, code=untrusted)
                sticky = what == "its folder" and status.st_mode & stat.S_ISVTX
                if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
                    raise error(
                        doing, on=str(path), why=f"others can write {what} (mode {stat.S_IMODE(status.st_mode):o})",
                        remedy=f"chmod go-w {path if what == 'it' else path.parent}", code=untrusted,
                    )
            data = bytearray()
            while len(data) <= MAX_BYTES and (chunk := file.read(MAX_BYTES + 1 - len(data))):
                data += chunk
            return bytes(data)
    except OSError as failed:
        raise error(doing, on=str(path), errno=failed.errno) from None
    finally:
        os.close(fd)


def _top_level(root: bytes) -> dict[str, str]:
    """Names at the top of the repository, with the start of the few files whose text matters."""
    files: dict[str, str] = {}
    for entry in os.scandir(os.fsdecode(root)):
        files[entry.name] = ""
        if entry.name in starter.READ_FILES and entry.is_file():
            try:
                with open(entry.path, "rb") as file:
                    files[entry.name] = file.read(256 << 10).decode("utf-8", "replace")
            except OSError:
                continue  # an unreadable Makefile tells nothing; the person adds the command
    return files


def _check_appended(text: str, target: Path, present: PolicyFile) -> None:
    """Appending is right only where ``projects`` is the file's last key; the result must read as one project more."""
    try:
        appended = parse_policy(text.encode("utf-8"), str(target))
    except PolicyError:
        appended = present
    if len(appended.projects) != len(present.projects) + 1 or appended.defaults != present.defaults:
        raise PolicyError(
            "add the repository to the policy", on=str(target), code="policy_exists",
            why="its `projects:` list is not at the end of the file", remedy="add the entry by hand",
        )


def _replace(target: Path, data: bytes) -> None:
    """Put the new text in place at once: a crash leaves the old file or the new one."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        os.unlink(partial)
        raise
