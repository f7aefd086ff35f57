"""The manual, the help and the completion say the same as the program."""
from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from agent.cli.problems import run
from agent.cli.root import COMMANDS, lemni
from support.lemni import ARGV, ROOT, environment

PAGE = ROOT / "docs/man/lemni.1"


def commands(command: click.Command = lemni, name: str = "lemni") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    if isinstance(command, click.Group):
        with click.Context(command) as context:
            for child in command.list_commands(context):
                found = command.get_command(context, child)
                assert found is not None
                yield from commands(found, f"{name} {child}")


ALL = list(commands())


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_the_manual_names_every_command_and_option(name: str, command: click.Command) -> None:
    page = PAGE.read_text().replace("\\-", "-").replace("\\fR", "").replace("\\fB", "")
    words = name.split()[1:]
    if words and not isinstance(command, click.Group):
        assert " ".join(words) in page
    for option in command.params:
        if isinstance(option, click.Option):
            for spelling in option.opts:
                assert spelling in page, f"{name} {spelling}"


def test_the_manual_is_well_formed() -> None:
    if shutil.which("groff") is None:
        pytest.skip("no groff on PATH")
    done = subprocess.run(
        ["groff", "-man", "-K", "utf8", "-ww", "-b", "-z", str(PAGE)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("name", "command"), ALL, ids=[name for name, _ in ALL])
def test_every_help_has_an_example(name: str, command: click.Command, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lemni, [*name.split()[1:], "--help"]) == 0
    shown = capsys.readouterr().out
    if not (isinstance(command, click.Group) and name != "lemni"):
        assert re.search(rf"^  .*{name}\b", shown.partition("Usage:")[2].partition("\n")[2], re.MULTILINE), shown


def test_the_commands_are_the_ones_that_exist() -> None:
    assert [name.split()[1] for name, _ in ALL if name.count(" ") == 1] == list(COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(lemni, ["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "_LEMNI_COMPLETE" in script
    if shell == "bash":
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_every_module_of_the_command_line_is_lazy() -> None:
    """``lemni --version`` answers before anything is imported (its cost is a promise: three interpreters at most)."""
    code = (
        "import sys; sys.argv = ['lemni', '--version']\n"
        "try:\n    from agent.cli.main import entry; entry()\n"
        "finally:\n    heavy = {'click', 'trio', 'httpx', 'yaml', 'msgspec', 'supervisor.types'} & set(sys.modules)\n"
        "    assert not heavy, heavy\n"
    )
    done = subprocess.run(["python3", "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("lemni "), done.stderr


def test_help_whose_reader_is_gone_ends_as_every_output_does() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as nobody:
        ended = subprocess.run([*ARGV, "--help"], cwd=ROOT, stdout=nobody, stderr=subprocess.PIPE, check=False)
    assert (ended.returncode, ended.stderr) == (141, b"")


WRITERS = [
    ["--version"], ["--json", "--version"], ["doctor", "--json"], ["policy", "show"], ["policy", "show", "--json"],
    ["sessions", "--all", "--json"], ["completion", "bash"], *([*name.split()[1:], "--help"] for name, _ in ALL),
]


@pytest.mark.parametrize("arguments", WRITERS, ids=" ".join)
def test_what_cannot_be_written_is_said(arguments: list[str], home: Path) -> None:
    """One error that names the reason, whoever writes: ours, click's."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*ARGV, *arguments], env=environment(home), stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE,
            text=True, check=False,
        )
    assert done.stderr.splitlines()[-3:-1] == [
        "lemni: write to standard output: ENOSPC",
        "  fault   this machine's: the kernel or the file system refuses or lacks something [output_gone]",
    ]
    assert not re.search("Traceback|bug|Exception", done.stderr)
    assert done.returncode == (3 if "verify" in arguments else 1)


def test_the_verdict_on_a_journal_is_not_mixed_up_with_a_full_disk(home: Path) -> None:
    journal = home / "x.jsonl"
    journal.touch()
    for words in (["verify", str(journal)], ["verify"], ["verify", "--json"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [*ARGV, "journal", *words], env=environment(home), stdin=subprocess.DEVNULL, stdout=full,
                stderr=subprocess.PIPE, text=True, check=False,
            )
        assert (done.returncode, "ENOSPC" in done.stderr) == (3, True), done.stderr


@pytest.mark.parametrize("arguments", [["--nope"], ["-p", "x"], ["diff", "none"]])
def test_a_problem_that_cannot_be_told_keeps_its_exit_code(arguments: list[str], home: Path) -> None:
    codes = []
    for name in ("/dev/full", "/dev/null"):
        with open(name, "w") as stream:
            done = subprocess.run(
                [*ARGV, *arguments], env=environment(home), cwd=home, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=stream, check=False,
            )
            codes.append((done.returncode, done.stdout))
    assert codes[0] == codes[1]


def test_a_slow_reader_of_a_pipe_that_does_not_block_gets_all(home: Path) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    code = "from agent.cli.terminal import *; prepare(); out('x' * (1 << 20))"
    with subprocess.Popen([sys.executable, "-c", code], env=environment(home), stdout=writer) as process:
        os.close(writer)
        with open(reader, "rb") as pipe:
            assert len(pipe.read()) == (1 << 20) + 1
    assert process.returncode == 0
