"""What a command carries goes, what it is stays; where words cannot be told apart, all of it goes."""
from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.journal.shelltext import OPERAND, abridge, digest

LONG = "print(" + "1" * OPERAND + ")"

KEPT = [
    "ls -la | grep x && make test 2>&1 >/dev/null",
    "for i in $(seq 3); do echo \"${i:-a b}\"; done # it's",
    "x=$((1<<2)); ((y<<3))\necho 'a b'",
    "case $x in a) ls;; esac",
    'echo "a $(echo ")" \'b\') c"',
    "echo `date` $'it\\'s' \\' \"\\\"\"",
    "bash -c 'ls -la'",
    "grep -c foo bar",
    "cat <<EOF\nEOF",
    "",
]  # fmt: skip


@pytest.mark.parametrize("command", KEPT)
def test_kept_as_it_is(command: str) -> None:
    assert abridge(command) == command


REPLACED = [  # (command with {}, what is replaced)
    ("cat > f <<EOF\n{}\nEOF\nls", "line 1\nit's 2"),
    ("cat > f <<-'E F'\n{}\n\tE F\nls", "\tline"),
    ("cat <<A && cat <<B\n{}\nA\n<rest>\nB\nls", "a"),
    ('git commit -m "$(cat <<\'EOF\'\n{}\nEOF\n)" && ls', "it's a message"),
    ("cat <<< {} | wc", "'some data'"),
    ("cat <<<{}", '"$x y"'),
    ("python3 -c {} && ls", f"'{LONG}'"),
    ("bash -lc {}; ls", f'"{LONG}"'),
    ("node -e{}", f"'{LONG}'"),
    ("bash --command {}", f"'{LONG}'"),
    ("cat <<EOF\n{}", "never ends"),
    ("x=$(python -c {})", f"'{LONG}'"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "data"), REPLACED, ids=[command[:30] for command, _ in REPLACED])
def test_replaced_by_digest(command: str, data: str) -> None:
    shown = abridge(command.format(data).replace("<rest>", "b"))
    assert shown == command.format(digest(data)).replace("<rest>", digest("b"))


@pytest.mark.parametrize("command", ["echo 'x", 'echo "x', "echo $(ls", "echo `ls", "echo ${x", "cat <<", "echo $'x", "(" * 100,
                                     'echo "$(' * 60, "x) ls '"])
def test_what_cannot_be_read_goes_whole(command: str) -> None:
    assert abridge(command) == digest(command)


def test_a_short_operand_of_code_is_kept_and_a_long_one_is_not() -> None:
    short, long = "x" * (OPERAND - 2), "x" * (OPERAND - 1)
    assert short in abridge(f"sh -c '{short}'")
    assert long not in abridge(f"sh -c '{long}'")


@given(st.text("ab'\"\\$(){}`<>-c \n#|&;éE", max_size=60))
def test_any_text_has_an_answer(command: str) -> None:
    assert isinstance(abridge(command), str)


PIECES = ["a", "'b c'", '"d $(e) f"',
          "$(g 'h')", "`l 'm n'`", "\\'", "${i:-j}", "|", "&&", "# k'\n", "\n", "$((1<<2))"]


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_what_bash_reads_without_data_is_kept(words: list[str]) -> None:
    command = " ".join(words)
    bash = shutil.which("bash")
    assert bash is not None
    if subprocess.run([bash, "-n", "-c", command], capture_output=True, check=False).returncode == 0:
        assert abridge(command) == command
