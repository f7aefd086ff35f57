"""Commands: free only when plain and listed; the refused families refused however they are dressed; the rest asks."""
from __future__ import annotations

import time

import pytest

from supervisor.guard.commands import LIMIT, judge_command
from supervisor.settings.patterns import command_set, parse_pattern
from supervisor.types import Reason, Verdict

LISTED = [[parse_pattern(text) for text in ("make test", "pytest *", "git status *", "echo *", "ls *", "tool --mode=*.x run")]]
EVERYTHING = [[parse_pattern("*")]]


@pytest.mark.parametrize("command", [
    "make test", "  make\ttest \n", "make test 2>/dev/null", "make test >/dev/null 2>&1", "make test 2>&1", "pytest",
    "pytest -k 'a or b' tests/*.py", "echo '$HOME'", 'echo "a b" \\$x', "ls </etc/hostname", "echo a # a comment",
    "tool --mode=a.x run", "'make' te\"st\"", "ls >&2", "echo a 2>&-",
])
def test_listed_and_plain_is_free(command: str) -> None:
    assert judge_command(command, LISTED).verdict is Verdict.ALLOW


@pytest.mark.parametrize("command", [
    "make", "make install", "make test all", "lsof -i", "make test && ls", "ls; ls", "ls | cat", "ls &", "ls\nls", "ls\rls",
    "(ls)", "{ ls; }", 'echo "$HOME"', "echo $(id)", "echo `id`", "echo ${x:-a b}", "cat <<EOF\nit's\nEOF", "echo <(ls)",
    "A=1 make test", "A=1", "", "   ", "# only a comment", "make t*st", "~/make test", "$CMD x", "${C}md x", "X=ls; $X",
    "tool --mode=a/b run", "tool --mode=*.x run", "function f { ls; }", "frobnicate --all", "echo $'a'", "ls >",
])
def test_what_is_not_plain_and_listed_asks(command: str) -> None:
    found = judge_command(command, LISTED)
    assert (found.verdict, found.reason) == (Verdict.ASK, Reason.NOT_LISTED)


@pytest.mark.parametrize("command", [
    "echo x > f", "echo x >> f", "echo x 2> f", "echo x &> f", "echo x >| f", "echo x <> f", "echo x >& f", "> f",
    "echo x > /dev/null > f",
])
def test_a_redirection_that_writes_asks_whatever_is_listed(command: str) -> None:
    assert judge_command(command, EVERYTHING).verdict is Verdict.ASK


def test_redirections_may_be_allowed_into_the_working_copy_and_tmp_only() -> None:
    for target, verdict in (
        ("f", Verdict.ALLOW), ("a/b", Verdict.ALLOW), ("/tmp/x", Verdict.ALLOW), ("/workspace/x", Verdict.ALLOW),
        ("../f", Verdict.ASK), ("/etc/x", Verdict.ASK), ("/tmp/../etc/x", Verdict.ASK), ("~/f", Verdict.ASK),
        ("/dev/sda", Verdict.EXCLUDE), ("/dev/null", Verdict.ALLOW),
    ):
        assert judge_command(f"echo x > {target}", EVERYTHING, redirections=True).verdict is verdict, target


REFUSED = [
    "sudo id", "su -c id", "doas id", "/usr/bin/sudo id", "\\sudo id", "'su'do id", "pkexec id", "runas /user:A cmd", "gsudo x",
    "Start-Process x -Verb RunAs", "rm -rf /", "rm -r -f /usr", "rm -fr /etc/", "rm --recursive --force /*",
    "rm -rf --no-preserve-root /", "rm -rf //", "rm -rf /usr/..", "rm /etc/passwd", "rm -f /boot/vmlinuz", "unlink /etc/shadow",
    "dd if=x of=/dev/sda", "cat x > /dev/sda", "tee /dev/mem", "cp x /dev/nvme0n1", "mkfs.ext4 /x", "mkfs -t ext4 img",
    "mke2fs img", "format C:", "chmod 777 f", "chmod -R 0777 d", "chmod a+rwx f", "chmod u+s f", "chmod 4755 f", "chmod 6755 f",
    "install -m 4755 a b", "install --mode=4755 a b", "chown root f", "chown root:root f", "chown 0 f", "chown -R 0:0 d",
    "insmod x.ko", "modprobe x", "kmod insert x", "iptables -F", "ip6tables -A INPUT", "nft add rule x", "ufw disable",
    "firewall-cmd --add-port=1/tcp", 'eval "ls"', "exec ls", "builtin eval ls", "command eval ls", "${RM} -rf /",
    "$'sudo' id", r"$'\x73udo' id", r"$'\163udo' id", r"$'\u0073udo' id", '$"sudo" id', r"rm -rf $'\x2f'",
    "rm -rf /{etc,usr}", "{sudo,id}", "rm -{r,f} /{{a,etc},b}", "su{do,} id",
    "bash -c 'sudo id'", "sh -ec 'sudo id'", "bash -o pipefail -c 'ls; sudo id'", "env bash -c 'sudo id'",
    "/bin/sh -c 'sh -c \"sudo id\"'",
    "bash <<< 'sudo id'", "env -S 'sudo id'", "env --split-string='sudo id'", "env '-Ssudo id'", "trap 'sudo id' EXIT",
    "script -qc 'sudo id' /dev/null", "mapfile -C 'sudo id' -c 1 x", "parallel sudo ::: id", "jobs -x sudo id",
    "echo $(sudo id)", 'echo "$(sudo id)"', 'echo "a $(echo "b $(sudo id)")"', "echo `sudo id`", 'echo "`sudo id`"',
    r"echo `echo \`sudo id\``", "echo ${x:-`sudo id`}", "echo ${x:-$(sudo id)}", "echo $((1 + $(sudo id)))",
    "cat <<EOF\n$(sudo id)\nEOF", "cat <<EOF\n`sudo id`\nEOF", "cat <<EOF\nit's\nEOF\nsudo id", "cat <<-'E'\n\tx\n\tE\nsudo id",
    "function ls { sudo id; }\nls", "ls() { sudo id; }", "case x in x) sudo id;; esac",
]


@pytest.mark.parametrize("command", REFUSED)
def test_refused_families_whatever_is_listed(command: str) -> None:
    found = judge_command(command, EVERYTHING)
    assert (found.verdict, found.reason) == (Verdict.EXCLUDE, Reason.REFUSED_FAMILY)


@pytest.mark.parametrize("frame", [
    "{}", "ls; {}", "ls && {}", "ls || {}", "ls & {}", "ls | {}", "ls |& {}", "ls\n{}", "ls\r{}", "ls\r\n{}", "({})",
    "if true; then {}; fi", "! {}", "A=1 {}", "env A=1 {}", "env -u A {}", "env \"A=1\" {}", "nice -n 5 {}", "timeout 5 {}",
    "timeout -s KILL 5 {}",
    "nohup {}", "command {}", "xargs -n 1 {}", "for i in 1; do {}; done", "echo $(x); {}", "{} # comment",
])
def test_a_dangerous_piece_is_found_in_any_frame(frame: str) -> None:
    for command in ("sudo id", "rm -rf /", "mkfs.ext4 /x"):
        assert judge_command(frame.format(command), EVERYTHING).verdict is Verdict.EXCLUDE, frame


@pytest.mark.parametrize("command", [
    "echo sudo", "chmod 644 f", "chmod +x f", "chown user f", "rm -rf ./build", "rm -rf build", "rm -rf /tmp/x",
    "git log --format=%s",
    "cat <<EOF\nsudo make me a sandwich\nEOF", "grep eval f", "find . -exec ls", "exec > >(tee log); echo a", "exec 2>&1",
    "echo 'rm -rf /'", "ls # sudo", "rm f",
    "rm -rf /home/agent/.cache", "make 2>/dev/null", "tee /dev/null", "dd if=a of=b", "cp a b", "$SUDO id",
    'echo "$(date) sudo make me"', "echo `date` sudo", "bash -c 'echo sudo'", "bash sudo -c id", "bash -c ls 'sudo id'",
    "trap - EXIT",
    "cat <<'EOF'\n$(sudo id)\nEOF", "cat <<EOF\n\\$(sudo id)\nEOF", "cat <<EOF\nsudo id", "echo {sudo,id}", "echo '{a,b}' sudo",
    "git commit -m 'sudo id'", "env -S 'make test'", r"echo $'it\'s sudo'", r"echo '$(sudo id)'",
    'git commit -m "$(cat <<\'EOF\'\nuse sudo\nEOF\n)"',
])
def test_what_only_looks_alike_is_not_refused(command: str) -> None:
    assert judge_command(command, EVERYTHING).verdict is not Verdict.EXCLUDE


@pytest.mark.parametrize(
    "command",
    ["echo 'a", 'echo "a', "echo a\0b", "echo \ud800", "x" * (LIMIT + 1), "ls; echo '", "env " * 20000 + "ls",
     "$(" * 60_000, "`" * 3 + "$(" * 40, "echo " + "{a,b}" * 20, "(" * 60_000 + "echo '"],
)
def test_an_analysis_that_fails_refuses(command: str) -> None:
    found = judge_command(command, EVERYTHING)
    assert (found.verdict, found.reason) == (Verdict.EXCLUDE, Reason.EVALUATION_FAILED)


def test_every_list_must_cover_a_command() -> None:
    narrow = [parse_pattern("make test")]
    assert judge_command("make test", [*EVERYTHING, narrow]).verdict is Verdict.ALLOW
    assert judge_command("make all", [*EVERYTHING, narrow]).verdict is Verdict.ASK
    assert judge_command("make test", [*EVERYTHING, []]).verdict is Verdict.ASK


@pytest.mark.parametrize("entry", ["Bash(ls *)", "ls; id", "ls > f", "ls $HOME", "echo 'a", "", "ls\nid", "ls | cat", "# x"])
def test_a_pattern_that_is_no_plain_command_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_pattern(entry)


def test_quoted_stars_of_a_pattern_are_stars() -> None:
    pattern = [[parse_pattern("find . -name '*.py'")]]
    assert judge_command("find . -name '*.py'", pattern).verdict is Verdict.ALLOW
    assert judge_command("find . -name 'x.py'", pattern).verdict is Verdict.ASK


@pytest.mark.parametrize("command", ["{" * 120_000, "{a," * 40_000, "$(ls)" * 25_000, "`ls`" * 30_000, "cat <<E\n" * 15_000,
                                     "cat " + "<<E " * 30_000 + "\n" + "x\n" * 3000, "((" * 60_000, "${" * 60_000])
def test_a_text_made_to_take_long_does_not(command: str) -> None:
    began = time.process_time()
    judge_command(command, EVERYTHING)
    assert time.process_time() - began < 5


READ_ONLY = [list(command_set("read-only"))]


@pytest.mark.parametrize("command", [
    "git log --oneline -5", "git diff HEAD~1 -- a", "git show --stat", "tree -L 2", "file -b x", "cat a b",
    "git log --author=x",
])
def test_the_read_only_set_frees_what_reads(command: str) -> None:
    assert judge_command(command, READ_ONLY).verdict is Verdict.ALLOW


@pytest.mark.parametrize("command", [
    "git log --output=x", "git log -p --output x", "git show --outpu=x", "git diff --ext-diff", "git diff --ext", "tree -o x",
    "tree -ao x", "file -C -m x", "file --compile", "git log; id", "git log && id", "git log | sh", "git log\nid",
    "git log\rid",
    "git log & id", "git log |& sh", "git log $(id)", "git log <(id)", "git log >x", "git logx", "git -c core.pager=id log",
    "git\u00a0log", "ls\u00a0-la",
])
def test_nothing_is_smuggled_through_the_read_only_set(command: str) -> None:
    assert judge_command(command, READ_ONLY).verdict is Verdict.ASK
