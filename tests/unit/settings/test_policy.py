"""The policy file: every key read, everything else refused with file and line; projects, and what a user may restrict."""
from __future__ import annotations

import pytest

from supervisor.errors import PolicyError
from supervisor.settings.parse import command_sets, parse_policy
from supervisor.settings.policy import Budgets, Policy, Section, ThirdParty, resolve, restrict
from supervisor.settings.scanner import scan
from supervisor.types import Verdict

FULL = b"""\
version: 1
defaults:
  tools:
    {Read: allow, List: allowedWithoutPermission, Write: ask, Edit: allowedWithPermission, Bash: exclude, Task: disabled,
     "*": ask}
  commands: ["make test", "pytest *", "git status *"]
  commandSets: [read-only, test]
  rememberApprovals: true
  redirections: allow
  sensitiveTools: [Write]
  thirdPartyFiles: {manifests: validate, hooks: {value: validate, patterns: [".husky/**"]}, large: forbid}
  limitsEnforcement: required
  contextExclusions: ["fixtures/private/**"]
  history: hide
  budgets: {actions: 10, minutes: 5, extensions: 0, modelBytes: 1MiB, commands: 7}
  limits:
    {memory: 2GiB, cpus: 1, processes: 64, cpuSeconds: 60, disk: 512MiB, inodes: 5000, minutes: 3, openFiles: 100,
     fileSize: 1GiB}
  largeFile: 1MiB
  largeDiff: 3MiB
  compactionPercent: 70
  profile: default
  apparmor: off
  execution: [workstation]
  environment: {CI: "1", EMPTY: ""}
projects:
  - id: inner
    roots: [/srv/app/inner]
    tools: {Bash: allow}
  - id: app
    roots: [/srv/app, /srv/other/]
    users: [ada]
    budgets: {actions: 3}
"""


def policy(text: str | bytes, root: str = "/r", user: str = "ada") -> Policy:
    file = parse_policy(text if isinstance(text, bytes) else f"version: 1\ndefaults: {text}".encode(), "P")
    section, project = file.select(root, user)
    return resolve(section, origin="administrator", sha256=file.sha256, project=project, sets=command_sets())


def section(text: str) -> Section:
    return parse_policy(f"version: 1\ndefaults: {text}".encode(), "U").defaults


def test_every_key_is_read() -> None:
    found = policy(FULL, "/srv/app/x")
    assert found.project == "app"
    spelled = {name: found.tool(name) for name in ("Read", "List", "Write", "Edit", "Bash", "Task", "Other")}
    assert spelled == {
        "Read": Verdict.ALLOW, "List": Verdict.ALLOW, "Write": Verdict.ASK, "Edit": Verdict.ASK, "Bash": Verdict.EXCLUDE,
        "Task": Verdict.EXCLUDE, "Other": Verdict.ASK,
    }
    texts = [pattern.text for pattern in found.commands[0]]
    assert texts[:3] == ["make test", "pytest *", "git status *"]
    assert "ls *" in texts
    assert found.remember_approvals
    assert found.redirections
    assert found.sensitive_tools == {"Write"}
    assert dict(found.third_party)["manifests"] == ThirdParty(True)
    assert dict(found.third_party)["hooks"] == ThirdParty(True, (".husky/**",))
    assert dict(found.third_party)["ci"] == ThirdParty(False)
    assert found.limits_required
    assert found.context_exclusions == ("fixtures/private/**",)
    assert found.budgets == Budgets(3, None, None, 32 << 20, 150)  # a project's key replaces the defaults' key whole
    assert (found.limits.memory, found.limits.disk, found.limits.minutes) == (2 << 30, 512 << 20, 3)
    assert (found.large_file, found.large_diff, found.compaction_percent) == (1 << 20, 3 << 20, 70)
    assert (found.history, found.profile, found.apparmor, found.execution) == ("hide", "default", "off", ("workstation",))
    assert found.environment == (("CI", "1"), ("EMPTY", ""))
    assert found.catalogue(["Read", "Bash", "Write"]) == ("Read", "Write")


def test_defaults_of_an_empty_section() -> None:
    found = policy("{}")
    assert found.other_tools is Verdict.ASK
    assert found.commands == ((),)
    assert (found.limits.memory, found.limits.processes, found.limits.inodes) == (4 << 30, 512, 500_000)
    assert found.budgets == Budgets(None, None, None, 32 << 20, 150)
    assert not any(value.validate for _, value in found.third_party)


def test_the_longest_root_wins_and_others_are_refused() -> None:
    assert policy(FULL, "/srv/app/inner/deep").project == "inner"
    assert policy(FULL, "/srv/other").project == "app"
    for root, user in (("/srv/application", "ada"), ("/home/ada", "ada"), ("/srv/app", "bob")):
        with pytest.raises(PolicyError) as refused:
            policy(FULL, root, user)
        assert refused.value.code == "project_not_authorised"
    assert policy(b"version: 1\nprojects: [{id: all, roots: [/]}]", "/anywhere").project == "all"


@pytest.mark.parametrize(("text", "line", "quoted"), [
    ("version: 2", 1, "'2'"),
    ("defaults: {}", 1, "version"),
    ("version: 1\nunknown: 1", 2, "unknown"),
    ("version: 1\ndefaults:\n  tols: {}", 3, "tols"),
    ("version: 1\ndefaults:\n  tools:\n    Read: permit", 4, "permit"),
    ("version: 1\ndefaults:\n  tools:\n    Read: Allow", 4, "Allow"),
    ("version: 1\ndefaults:\n  tools:\n    Bash(ls): allow", 4, "tool's name"),
    ("version: 1\ndefaults:\n  tools: [Read]", 3, "list"),
    ("version: 1\ndefaults:\n  commands: ['Bash(ls)']", 3, "bare patterns"),
    ("version: 1\ndefaults:\n  commands:\n    - ls\n    - 'a; b'", 5, "a; b"),
    ("version: 1\ndefaults:\n  commandSets: [everything]", 3, "everything"),
    ("version: 1\ndefaults:\n  rememberApprovals: yes", 3, "yes"),
    ("version: 1\ndefaults:\n  budgets: {actions: 0}", 3, "'0'"),
    ("version: 1\ndefaults:\n  budgets: {actions: -3}", 3, "-3"),
    ("version: 1\ndefaults:\n  budgets: {actions: 1.5}", 3, "1.5"),
    ("version: 1\ndefaults:\n  budgets: {actions: 1e3}", 3, "1e3"),
    ("version: 1\ndefaults:\n  budgets: {actions: '10'}", 3, "10"),
    ("version: 1\ndefaults:\n  budgets: {actions: null}", 3, "null"),
    ("version: 1\ndefaults:\n  budgets: {actions: .inf}", 3, "inf"),
    ("version: 1\ndefaults:\n  budgets: {actions: 99999999999999999999}", 3, "999"),
    ("version: 1\ndefaults:\n  limits: {memory: 4GB}", 3, "4GB"),
    ("version: 1\ndefaults:\n  limits: {memory: 1KiB}", 3, "1KiB"),
    ("version: 1\ndefaults:\n  limits: {cpus: 0}", 3, "'0'"),
    ("version: 1\ndefaults:\n  limitsEnforcement: always", 3, "always"),
    ("version: 1\ndefaults:\n  thirdPartyFiles: {ci: allow}", 3, "allow"),
    ("version: 1\ndefaults:\n  thirdPartyFiles: {docs: forbid}", 3, "docs"),
    ("version: 1\ndefaults:\n  profile: ../x", 3, "../x"),
    ("version: 1\ndefaults:\n  profile: nope", 3, "default"),
    ("version: 1\ndefaults:\n  execution: []", 3, "workstation"),
    ("version: 1\ndefaults:\n  execution: [docker]", 3, "docker"),
    ("version: 1\ndefaults:\n  environment: {BASH_ENV: x}", 3, "may not be set"),
    ("version: 1\ndefaults:\n  environment: {'BASH_FUNC_x%%': x}", 3, "may not be set"),
    ("version: 1\ndefaults:\n  contextExclusions: ['']", 3, "not empty"),
    ("version: 1\ndefaults:\n  contextExclusions:\n  - a\n  - /../x", 5, "below the project"),
    ("version: 1\ndefaults:\n  contextExclusions: ['!a']", 3, "no negation"),
    ("version: 1\ndefaults:\n  contextExclusions: ['a//b']", 3, "below the project"),
    ("version: 1\ndefaults:\n  contextExclusions: ['**']", 3, "below the project"),
    ("version: 1\ndefaults:\n  contextExclusions:\n  - a\n  - 'b[c'", 5, "not closed"),
    ("version: 1\ndefaults:\n  contextExclusions: ['b\\']", 3, "backslash"),
    ("version: 1\ndefaults:\n  contextExclusions: ['[[:nope:]]']", 3, "no class"),
    ("version: 1\nprojects:\n  - id: a", 3, "roots"),
    ("version: 1\nprojects:\n  - {id: a, roots: [relative]}", 3, "absolute"),
    ("version: 1\nprojects:\n  - {id: a, roots: [/a/../b]}", 3, "absolute"),
    ("version: 1\nprojects: [{id: a, roots: [/a]}, {id: a, roots: [/b]}]", 2, "twice"),
    ("version: 1\ndefaults: {}\ndefaults: {}", 3, "twice"),
    ("version: 1\ndefaults: {tools: {Read: ask, Read: allow}}", 2, "twice"),
    ("version: 1\n  bad: [", 2, "YAML"),
    ("version: 1\ndefaults:\n  profile: d\x01", 3, "U+0001"),
    ("version: 1\ndefaults: *nothing", 2, "YAML"),
    ("- 1", 1, "mapping"),
])
def test_a_wrong_file_is_refused_with_line_and_value(text: str, line: int, quoted: str) -> None:
    with pytest.raises(PolicyError) as refused:
        parse_policy(text.encode(), "/etc/p.yaml")
    assert refused.value.on == f"/etc/p.yaml:{line}"
    assert quoted in str(refused.value)


@pytest.mark.parametrize("data", [
    b"", b"# only a comment\n", b"\xff\xfe", b"version: 1\n---\nversion: 1", b"[" * 5000, b"a" * (2 << 20),
])
def test_what_is_no_policy_is_refused(data: bytes) -> None:
    with pytest.raises(PolicyError):
        parse_policy(data, "p")


def test_a_users_file_only_restricts() -> None:
    base = policy("""{tools: {Read: allow, Bash: ask, Write: exclude, "*": allow}, commands: ["*"], redirections: allow,
        rememberApprovals: true, budgets: {actions: 10}, limits: {memory: 1GiB}, thirdPartyFiles: {ci: validate},
        apparmor: auto, environment: {CI: "1"}}""")
    mine = section("""{tools: {Read: ask, Bash: allow, Write: allow, List: exclude}, commands: ["make *"], redirections: ask,
        rememberApprovals: false, budgets: {actions: 99, minutes: 5}, limits: {memory: 512MiB, processes: 100000},
        thirdPartyFiles: {ci: forbid, hooks: validate}, apparmor: off, environment: {X: "2"}, execution: [workstation],
        sensitiveTools: [Search], contextExclusions: [x], limitsEnforcement: required}""")
    found = restrict(base, mine, source="U", sets=command_sets())
    verdicts = {name: found.tool(name) for name in ("Read", "Bash", "Write", "List", "Search", "Edit")}
    assert verdicts == {
        "Read": Verdict.ASK, "Bash": Verdict.ASK, "Write": Verdict.EXCLUDE, "List": Verdict.EXCLUDE, "Search": Verdict.ASK,
        "Edit": Verdict.ALLOW,
    }
    assert [[pattern.text for pattern in listed] for listed in found.commands] == [["*"], ["make *"]]
    assert not found.redirections
    assert not found.remember_approvals
    assert (found.budgets.actions, found.budgets.minutes) == (10, 5)
    assert (found.limits.memory, found.limits.processes) == (512 << 20, 512)
    assert not dict(found.third_party)["ci"].validate
    assert not dict(found.third_party)["hooks"].validate
    assert (found.apparmor, found.environment, found.execution) == ("auto", (("CI", "1"),), ("workstation",))
    assert found.limits_required
    assert found.context_exclusions == ("x",)
    assert found.idle == {"thirdPartyFiles"}


def test_a_users_file_that_says_nothing_changes_nothing() -> None:
    base = policy(FULL, "/srv/app")
    assert restrict(base, section("{}"), source="U", sets=command_sets()) == base


def test_a_user_chooses_neither_profile_nor_another_place() -> None:
    base = policy("{execution: [server]}")
    for mine in (Section(profile="loose"), section("{execution: [workstation]}")):
        with pytest.raises(PolicyError):
            restrict(base, mine, source="U", sets=command_sets())


def test_words_keep_quoting_and_know_what_they_do_not_know() -> None:
    found = scan("a 'b c'\"d\"\\e \"$x\" f*")
    assert [word.text for word in found.pieces[0].words] == ["a", "b cde", "$x", "f*"]
    assert [word.known for word in found.pieces[0].words] == [True, True, False, True]
    assert [word.globs for word in found.pieces[0].words] == [False, False, False, True]
    assert len(scan("a && b || c; d & e | f\ng").pieces) == 7
    assert scan("a '").unterminated
    assert not scan("a $(b '").unterminated  # inside a nesting, the quote's partner is not ours to find
    assert scan("a 2>&1 >f <g 3<>h &>>i").pieces[0].words[0].text == "a"
    assert [redirection.writes for redirection in scan("a 2>&1 >f <g 3<>h &>>i >&j 4>&-").pieces[0].redirections] == [
        False, True, False, True, True, True, False,
    ]
