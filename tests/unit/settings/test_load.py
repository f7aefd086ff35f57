"""The files: whose they must be, which one decides, the starter policy that is written and read back."""
from __future__ import annotations

import os
from pathlib import Path

import pytest

from supervisor.errors import Fault, PolicyError, SettingError
from supervisor.settings.load import (
    SettingFiles,
    check_policy,
    describe_policy,
    load_bounds,
    load_config,
    load_policy,
    process_environment,
    read_own_policy,
    starter_policy,
    without_effect,
    write_starter,
)
from supervisor.settings.policy import WITHOUT_EFFECT
from supervisor.types import Verdict

ROOT = b"/srv/app"
ME = os.getuid()


@pytest.fixture
def files(tmp_path: Path) -> SettingFiles:
    for name in ("etc", "own"):
        (tmp_path / name).mkdir(mode=0o755)
    return SettingFiles(
        tmp_path / "etc/policy.yaml", tmp_path / "own/policy.yaml", tmp_path / "etc/config.yaml", tmp_path / "own/config.yaml"
    )


def put(path: Path, text: str, mode: int = 0o600) -> None:
    path.write_text(text)
    path.chmod(mode)


def allow(verdict: str) -> str:
    return f"version: 1\ndefaults: {{tools: {{Read: {verdict}}}}}\n"


def test_without_any_file_every_tool_asks(files: SettingFiles) -> None:
    found = load_policy(files, ROOT, "ada")
    assert (found.origin, found.tool("Read"), found.commands) == ("none", Verdict.ASK, ((),))


def test_the_users_file_serves_where_there_is_no_other(files: SettingFiles) -> None:
    put(files.user_policy, allow("allow"))
    found = load_policy(files, ROOT, "ada")
    assert (found.origin, found.tool("Read")) == ("user", Verdict.ALLOW)


@pytest.mark.skipif(ME != 0, reason="needs root: an administrator's file is root's")
def test_beside_an_administrators_file_the_users_only_restricts(files: SettingFiles) -> None:
    put(files.admin_policy, allow("ask"), 0o644)
    put(files.user_policy, allow("allow"))
    found = load_policy(files, ROOT, "ada")
    assert (found.origin, found.tool("Read")) == ("administrator", Verdict.ASK)
    alone = found.sha256
    put(files.user_policy, allow("exclude"))
    found = load_policy(files, ROOT, "ada")
    assert found.tool("Read") is Verdict.EXCLUDE
    assert found.sha256 != alone
    with pytest.raises(PolicyError) as refused:
        write_starter(files, ROOT)
    assert refused.value.code == "policy_managed"


@pytest.mark.skipif(ME == 0, reason="needs an ordinary user: root's files are the administrator's")
def test_an_administrators_file_that_is_not_roots_is_refused(files: SettingFiles) -> None:
    put(files.admin_policy, allow("allow"))
    with pytest.raises(PolicyError) as refused:
        load_policy(files, ROOT, "ada")
    assert refused.value.code == "policy_untrusted"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_can_write_is_refused(files: SettingFiles, mode: int) -> None:
    put(files.user_policy, allow("allow"), mode)
    with pytest.raises(PolicyError) as refused:
        load_policy(files, ROOT, "ada")
    assert refused.value.code == "policy_untrusted"
    assert refused.value.remedy is not None
    assert "chmod go-w" in refused.value.remedy


def test_a_folder_that_others_can_write_is_refused(files: SettingFiles) -> None:
    put(files.user_policy, allow("allow"))
    files.user_policy.parent.chmod(0o777)
    with pytest.raises(PolicyError):
        load_policy(files, ROOT, "ada")


@pytest.mark.skipif(ME != 0, reason="needs root to give a file away")
def test_a_strangers_file_is_refused(files: SettingFiles) -> None:
    put(files.user_policy, allow("allow"))
    os.chown(files.user_policy, 4242, 4242)
    with pytest.raises(PolicyError) as refused:
        load_policy(files, ROOT, "ada")
    assert "4242" in str(refused.value)


def test_what_is_no_file_is_refused_without_waiting(files: SettingFiles) -> None:
    os.mkfifo(files.user_policy, 0o600)
    with pytest.raises(PolicyError):
        load_policy(files, ROOT, "ada")
    files.user_config.mkdir()
    with pytest.raises(SettingError):
        load_config(files)


def test_a_link_to_nowhere_is_not_the_same_as_no_file(files: SettingFiles) -> None:
    files.user_policy.symlink_to("gone")
    with pytest.raises(PolicyError) as refused:
        load_policy(files, ROOT, "ada")
    assert refused.value.errno_name == "ENOENT"
    files.user_config.symlink_to("gone")
    with pytest.raises(SettingError):
        load_config(files)


@pytest.mark.skipif(ME == 0, reason="root reads everything")
def test_an_unreadable_file_is_refused(files: SettingFiles) -> None:
    put(files.user_policy, allow("allow"), 0o000)
    with pytest.raises(PolicyError) as refused:
        load_policy(files, ROOT, "ada")
    assert refused.value.errno_name == "EACCES"


WRONG = (
    "version: 1\ndefaults: {tools: {Read: yes}}",
    "version: 1\ndefaults: {nonsense: 1}",
    "version: 1\ndefaults: {profile: nowhere}",
    "version: 1\nsomething: [",
)


@pytest.mark.parametrize("text", WRONG)
def test_the_users_own_file_is_the_users_to_mend(files: SettingFiles, text: str) -> None:
    put(files.user_policy, text)
    with pytest.raises(PolicyError) as refused:
        load_policy(files, ROOT, "ada")
    assert refused.value.fault is Fault.USER


def test_an_invalid_file_is_never_a_default(files: SettingFiles) -> None:
    put(files.user_policy, "version: 1\ndefaults: {tools: {Read: yes}}")
    with pytest.raises(PolicyError) as refused:
        load_policy(files, ROOT, "ada")
    assert refused.value.on == f"{files.user_policy}:2"
    with pytest.raises(PolicyError):
        check_policy(files.user_policy)


def test_relative_paths_of_a_model_belong_to_the_file(files: SettingFiles, home: Path) -> None:
    put(files.user_config, "models:\n- {name: a, provider: scripted, script: s.yaml}\n"
        "- {name: b, provider: scripted, script: ~/s}\n")
    found = load_config(files)
    assert found.model("a").script == str(files.user_config.parent / "s.yaml")
    assert found.model("b").script == str(home / "s")
    assert load_config(SettingFiles.standard(home)).models == ()


def test_the_environment_is_read_once(monkeypatch: pytest.MonkeyPatch, files: SettingFiles) -> None:
    process_environment.cache_clear()
    try:
        monkeypatch.setenv("LEMNISCATE_SESSION_MAX_ACTIONS", "7")
        policy = load_policy(files, ROOT, "ada")
        assert load_bounds(load_config(files), policy).actions == 7
        monkeypatch.setenv("LEMNISCATE_SESSION_MAX_ACTIONS", "8")
        assert load_bounds(load_config(files), policy).actions == 7
    finally:
        process_environment.cache_clear()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "my repo"
    (root / "tests").mkdir(parents=True)
    (root / "pyproject.toml").touch()
    (root / "Makefile").write_text("VAR := 1\ntest: build\n\tpytest\n")
    (root / "package.json").write_text('{"scripts": {"test": "jest"}}')
    return root


def test_the_starter_policy_knows_the_repositorys_test_commands(files: SettingFiles, repository: Path) -> None:
    root = os.fsencode(repository)
    assert write_starter(files, root) == files.user_policy
    assert files.user_policy.stat().st_mode & 0o777 == 0o600
    assert files.user_policy.read_text() == starter_policy(root)
    found = load_policy(files, root, "ada")
    texts = [pattern.text for pattern in found.commands[0]]
    assert {"make test", "pytest *", "python -m pytest *", "npm test *"} <= set(texts)
    assert "make check" not in texts
    assert {found.tool(name) for name in ("Read", "List", "Search", "Write", "Edit", "Bash")} == {Verdict.ALLOW}
    assert found.tool("Other") is Verdict.ASK
    with pytest.raises(PolicyError) as again:
        write_starter(files, root)
    assert again.value.code == "policy_exists"
    assert again.value.fault is Fault.USER


def test_a_second_repository_is_added_and_the_first_kept(files: SettingFiles, repository: Path, tmp_path: Path) -> None:
    write_starter(files, os.fsencode(repository))
    other = tmp_path / "other"
    other.mkdir()
    write_starter(files, os.fsencode(other))
    policy = read_own_policy(files)
    assert policy is not None
    assert [project.id for project in policy.projects] == ["my-repo", "other"]
    assert load_policy(files, os.fsencode(other), "ada").tool("Bash") is Verdict.ALLOW


def test_a_policy_of_another_shape_is_left_alone(files: SettingFiles, repository: Path) -> None:
    put(files.user_policy, allow("ask"))
    with pytest.raises(PolicyError) as refused:
        write_starter(files, os.fsencode(repository))
    assert refused.value.remedy is not None
    assert files.user_policy.read_text() == allow("ask")


def test_the_policy_in_force_is_shown_whole(files: SettingFiles) -> None:
    put(files.user_policy, "version: 1\ndefaults: {tools: {Read: disabled}, commands: [make]}")
    policy = load_policy(files, ROOT, "ada")
    shown = dict(describe_policy(policy, load_bounds(load_config(files), policy, {})))
    assert shown["tools.Read"] == "exclude"
    assert shown["tools.*"] == "ask"
    assert shown["commands"] == "make"
    assert shown["budgets.actions"] == "150"
    assert shown["limits.cpuSeconds"] == "1800"
    assert shown["limits.inodes"] == "500000"
    assert shown["compactionPercent"] == "80"
    idle = {key.partition(".")[0] for key in shown if without_effect(key)}
    assert idle == {*WITHOUT_EFFECT, "budgets"}
    assert not without_effect("budgets.actions")
