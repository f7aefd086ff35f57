"""Stages 1 and 2 of a session: who, and under what policy; everything that can refuse it before anything is opened.

Nothing here starts, mounts or writes anything but the state directory. Every refusal is an error with a reason code, and is
journalled by the caller.
"""
from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from profiles.load import shipped
from profiles.model import Profile, ProfileError
from supervisor.errors import HostUnfit, LemniError, PolicyError
from supervisor.sandbox import environment, facts, filters
from supervisor.sandbox import sweep as cgroups
from supervisor.sandbox.machine import HostFacts
from supervisor.sandbox.spec import HOME, Limits
from supervisor.session.request import SessionRequest
from supervisor.session.state import private_directory, state_directory
from supervisor.settings.bounds import Bounds
from supervisor.settings.config import Config
from supervisor.settings.load import SettingFiles, load_bounds, load_config, load_policy
from supervisor.settings.policy import Policy
from supervisor.types import TOOL_OF, Identity, Layer
from supervisor.workspace.apply import UNDONE, recover
from supervisor.workspace.exclusions import Exclusions
from supervisor.workspace.open import sweep_scratch
from supervisor.workspace.project import Project, find_project
from supervisor.workspace.store import Store

# Where the policy does not say how long a sandbox may live: the bound of a message's duration comes first, and its summary turn
# after it; the sandbox's own end is the net under both.
WALL_GRACE = 240  # seconds

MODES = {"agent": tuple(TOOL_OF.values()), "plan": ("Read", "List", "Search")}  # O-35; a chat opens no session

# A git inside sees the overlay's inode and change times, not the index's: comparing less keeps `git status` from reading
# every file. The working copy may have another owner than the command, which git would refuse to trust.
GITCONFIG = environment.GITCONFIG + b"[core]\n\tcheckStat = minimal\n\ttrustctime = false\n[safe]\n\tdirectory = *\n"
HOME_FILES = ((HOME + b"/.gitconfig", GITCONFIG),)


@dataclass(frozen=True, slots=True)
class Prepared:
    """All that is decided before a sandbox is opened. ``notices`` are (code, text) for the person and the journal.

    ``hidden``: paths of lemni's own, which no session sees where they lie in its project.
    """

    state: Path
    config: Config
    project: Project
    policy: Policy
    bounds: Bounds
    profile: Profile
    host: HostFacts
    exclusions: Exclusions
    offered: tuple[str, ...]
    notices: tuple[tuple[str, str], ...]
    hidden: tuple[bytes, ...]

    @property
    def limits(self) -> Limits:
        """The policy's caps; no more CPUs than the host has (O-03)."""
        said = self.policy.limits
        default = Limits()
        return Limits(
            memory=said.memory or default.memory,
            cpus=float(min(said.cpus or default.cpus, len(os.sched_getaffinity(0)))),
            processes=said.processes or default.processes,
            cpu_seconds=said.cpu_seconds or default.cpu_seconds,
            disk=said.disk or default.disk,
            inodes=said.inodes or default.inodes,
            wall_seconds=self.bounds.minutes * 60 + WALL_GRACE if said.minutes is None else said.minutes * 60,
            open_files=said.open_files or default.open_files,
            file_size=said.file_size or default.file_size,
        )

    @property
    def environment(self) -> tuple[tuple[bytes, bytes], ...]:
        """The sandbox's whole environment: the product's own set and the policy's literals, nothing of this process (TC-28)."""
        literal = dict(self.policy.environment)
        return environment.build(None, None, literal, literal)


def state_of(request: SessionRequest) -> Path:
    return state_directory() if request.state_dir is None else private_directory(request.state_dir)


def prepare(request: SessionRequest, identity: Identity) -> Prepared:
    """Read and check everything. Raises SettingError, PolicyError, ProjectError, HostUnfit, StoreError."""
    if request.mode not in MODES:
        raise LemniError("open a session", on=request.mode, why=f"modes: {', '.join(MODES)}", code="mode_unknown")
    state = state_of(request)
    config = request.config or load_config(request.files)
    project = find_project(request.directory)
    policy = load_policy(request.files, project.root, identity.name)
    bounds = load_bounds(config, policy)
    try:
        profile = shipped(policy.profile)
    except (ProfileError, OSError) as wrong:
        raise PolicyError("load the profile", on=policy.profile, why=str(wrong), code="profile_unknown") from None
    host = facts.read(profile)
    _require_apparmor(policy, host.layers)
    exclusions = Exclusions.parse(policy.context_exclusions)
    offered = policy.catalogue(MODES[request.mode])
    return Prepared(
        state, config, project, policy, bounds, profile, host, exclusions, offered, _notices(policy, bounds, host.layers),
        _own(state, config, request.files, project.root),
    )


def _own(state: Path, config: Config, files: SettingFiles, root: bytes) -> tuple[bytes, ...]:
    """State, cached filters, settings and the models' keys: hidden, even where somebody's project is their whole home.

    A settings folder that is itself the project is what the person wants to work on.
    """
    paths = [state, filters.cache_directory(), *(Path(model.api_key_file) for model in config.models if model.api_key_file)]
    own = [os.path.realpath(os.fsencode(path)) for path in (*paths, files.user_policy.parent)]
    return tuple(path for path in own if path != root or path == own[0])


def _require_apparmor(policy: Policy, layers: tuple[Layer, ...]) -> None:
    """``apparmor: required`` refuses a session without it (O-04); ``auto`` leaves the path rules to Landlock."""
    on = any(layer.name == "apparmor" and layer.on for layer in layers)
    if policy.apparmor == "required" and not on:
        raise HostUnfit(
            "open a sandbox", on="apparmor", why="the policy requires it and it is not in force here",
            remedy="set `apparmor: auto` in the policy where Landlock may carry the path rules",
        )


def _notices(policy: Policy, bounds: Bounds, layers: tuple[Layer, ...]) -> tuple[tuple[str, str], ...]:
    found = [("setting", announcement.text) for announcement in bounds.announcements]
    if policy.origin == "none":
        text = "there is no policy: every tool asks. Write one for this repository with `lemni policy init`"
        found.append(("policy_missing", text))
    if policy.idle:
        said = f"set in the policy, without effect in this version: {', '.join(sorted(policy.idle))}"
        said += "; the repository's commits can be read" if policy.history == "hide" else ""
        found.append(("without_effect", said))
    off: dict[tuple[str, str], list[str]] = {}  # several for one reason are one notice
    for layer in layers:
        if not layer.on:
            off.setdefault((layer.fact, layer.remedy), []).append(layer.name)
    for (fact, remedy), names in off.items():
        said = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} off: {fact}" + (f"; {remedy}" if remedy else "")
        found.append(("layer_off", said))
    return tuple(found)




def sweep(prepared: Prepared) -> Prepared:
    """Remove what a killed supervisor left: its control groups and scratch directories, and in the project a half-applied
    change, which becomes a notice. What is in use is locked.
    """
    cgroups.sweep(prepared.state)
    sweep_scratch(prepared.state / "scratch")
    try:
        if not recover(prepared.project.root, Store(prepared.state).applying(prepared.project.id)):
            return prepared
        text = UNDONE
    except LemniError as failed:  # the session works on a copy: what it finds is worth a word, not its end
        text = f"a `lemni apply` that was killed is half done in this repository: {failed}"
    return replace(prepared, notices=(*prepared.notices, ("apply_unfinished", text)))
