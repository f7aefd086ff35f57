"""The five families that no approval can unblock, seen on the words of one simple command (TC-10 … TC-22).

Hygiene, not a boundary: the sandbox gives none of these commands anything to break. The tables here refuse what is plainly
one of them, so that it is never put before a person as a question. What only might be one is left to ask.
"""
from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from supervisor.guard.scripts import scripts
from supervisor.settings.scanner import scan
from supervisor.settings.words import Redirection, Word, braces

SINKS = re.compile(r"/dev/(null|stdout|stderr|tty|fd/[0-9]+)")  # X-15: writing to them destroys nothing

_ELEVATION = frozenset({"sudo", "sudoedit", "su", "doas", "pkexec", "runuser", "run0", "runas", "runas.exe", "gsudo", "psexec"})
_MODULES = frozenset({"insmod", "modprobe", "rmmod", "kmod"})
_FIREWALL = re.compile(r"(ip6?|eb|arp)tables(-[a-z0-9-]+)?|nft|ufw|firewall-cmd|ipset")
_FORMATTING = re.compile(r"mkfs(\..+)?|mke2fs|mkswap|mkdosfs|mkntfs|wipefs|format|format\.com")
_CHMOD_WIDE = re.compile(r"0*[0-7]?777")
_CHMOD_SETID = re.compile(r"0*[2-7][0-7]{3}")
_SYMBOLIC_SETID = re.compile(r"(^|,)[ugoa]*[+=][rwxXt]*s")
_SYMBOLIC_WIDE = re.compile(r"(^|,)(a|ugo)?[+=](rwx|rxw|wrx|wxr|xrw|xwr)(,|$)")
_ROOT_OWNER = re.compile(r"(root|0+)([:.].*)?|[^:]*[:.](root|0+)")
_SYSTEM = re.compile(r"/(bin|boot|dev|etc|lib[a-z0-9]*|opt|proc|root|sbin|srv|sys|usr)(/.*)?")
_SYSTEM_ITSELF = re.compile(r"/?|/(var|home|run|mnt|media)/?")  # what lies below these may be the session's own

# Words that only introduce another command: skipped, with the options that take a value beside them.
_WRAPPERS: dict[str, frozenset[str]] = {
    "env": frozenset({"-u", "--unset", "-C", "--chdir", "-S", "--split-string"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "ionice": frozenset({"-c", "-n", "-p"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "stdbuf": frozenset({"-i", "-o", "-e"}),
    "time": frozenset({"-f", "-o"}),
    "timeout": frozenset({"-s", "--signal", "-k", "--kill-after"}),
    "xargs": frozenset({"-a", "-d", "-E", "-I", "-L", "-n", "-P", "-s"}),
    "command": frozenset(),
    "builtin": frozenset(),
    "busybox": frozenset(),
    "chroot": frozenset(),
    "jobs": frozenset(),
    "parallel": frozenset({"-a", "--arg-file", "-j", "--jobs", "-n", "-N", "-S", "--sshlogin", "--joblog", "--tmpdir"}),
}
_RESERVED = frozenset({"!", "{", "}", "if", "then", "else", "elif", "fi", "do", "done", "while", "until", "coproc", "function"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")


BRACES = 1000  # words out of one: bash would make them all
DEPTH = 32  # wrappers and reserved words before the command itself; each one costs a look at all the rest


class TooDeep(ValueError):
    """The command is wrapped more often than anybody writes: it is not judged (X-16)."""


def assignments(words: Sequence[Word]) -> int:
    """How many leading words are assignments."""
    count = 0
    for word in words:
        if not _ASSIGNMENT.match(word.text) or any(quoted for _, quoted in word.chars[: word.text.index("=")]):
            break
        count += 1
    return count


def refused_family(words: Sequence[Word], redirections: Sequence[Redirection] = (), depth: int = 0) -> str | None:
    """The family of one simple command, as words for a person; None when it is in none of them. Raises TooDeep.

    A text that the command would have a shell read (``sh -c``) is seen too; ``depth`` is how many such texts this one is in.
    """
    for redirection in redirections:
        target = redirection.target.text
        if redirection.writes and redirection.target.known and target.startswith("/dev/") and not SINKS.fullmatch(target):
            return "direct writing under /dev/"
    rest = _expanded(words)
    for _ in range(DEPTH):
        rest = rest[assignments(rest):]
        if not rest:
            return None
        name = _name(rest[0])
        if name is not None and name in _RESERVED:
            rest = rest[2 if name == "function" else 1:]
            continue
        if name == "exec" and len(rest) == 1:
            return None  # redirections of the shell's own streams: nothing takes its place
        family = _family(name, [word.text for word in rest[1:] if word.known])
        if family is None and name is not None:
            family = _family_of_scripts(scripts(name, rest[1:], redirections), depth)
        if family is not None:
            return family
        if name not in _WRAPPERS:
            return None
        rest = _wrapped(name, rest[1:])
    raise TooDeep(f"more than {DEPTH} commands wrapped in one another")


def _expanded(words: Sequence[Word]) -> list[Word]:
    """The words once braces are expanded. Raises TooDeep."""
    found: list[Word] = []
    for word in words:
        made = braces(word, BRACES)
        if made is None:
            raise TooDeep(f"more than {BRACES} words out of one brace expansion")
        found += made
    return found


def _family_of_scripts(texts: Iterable[str], depth: int) -> str | None:
    for text in texts:
        if depth >= DEPTH:
            raise TooDeep(f"more than {DEPTH} shell texts within one another")
        for piece in scan(text).pieces:
            if family := refused_family(piece.words, piece.redirections, depth + 1):
                return family
    return None


def _name(word: Word) -> str | None:
    """The command's name without its folder; None when only the shell will know it."""
    return word.text.rpartition("/")[2] if word.known and not word.globs else None


def _wrapped(name: str, rest: list[Word]) -> list[Word]:
    """The words of the command that a wrapper runs."""
    valued = _WRAPPERS[name]
    at = 0
    while at < len(rest) and rest[at].text.startswith("-"):
        at += 2 if rest[at].text in valued else 1
    while name == "env" and at < len(rest) and _ASSIGNMENT.match(rest[at].text):
        at += 1  # env reads these itself, quoted or not
    if name in ("timeout", "chroot") and at < len(rest):
        at += 1  # the duration, the new root
    return rest[at:]


def _family(name: str | None, arguments: list[str]) -> str | None:
    """One command by its name and known arguments; an unknown name is judged by its arguments alone."""
    if name is None:
        return "recursive deletion of a system directory" if _deletes_system(arguments, recursive_only=True) else None
    if name in _ELEVATION or ("-Verb" in arguments and "RunAs" in arguments):
        return "privilege elevation"
    if name in ("eval", "exec"):
        return f"{name}, whose effect cannot be judged"
    if _FORMATTING.fullmatch(name):
        return "formatting"
    if name in _MODULES:
        return "kernel modules"
    if _FIREWALL.fullmatch(name):
        return "the firewall"
    if name == "chmod":
        return _chmod(arguments)
    if name == "install" and any(_CHMOD_SETID.fullmatch(mode) for mode in _values(arguments, "-m", "--mode")):
        return "the setuid bit"
    if name in ("chown", "chgrp") and _operands(arguments) and _ROOT_OWNER.fullmatch(_operands(arguments)[0]):
        return "change of ownership to root"
    if name in ("rm", "unlink", "shred", "rmdir") and _deletes_system(arguments, recursive_only=False):
        return "deletion in the system tree"
    return "direct writing under /dev/" if _writes_device(name, arguments) else None


def _chmod(arguments: list[str]) -> str | None:
    mode = next((a for a in arguments if not a.startswith("-")), "")
    if _CHMOD_SETID.fullmatch(mode) or _SYMBOLIC_SETID.search(mode):
        return "the setuid bit"
    if _CHMOD_WIDE.fullmatch(mode) or _SYMBOLIC_WIDE.search(mode):
        return "opening permissions to everyone"
    return None


def _deletes_system(arguments: list[str], *, recursive_only: bool) -> bool:
    options = [a for a in arguments if a.startswith("-") and a != "-"]
    short = "".join(o[1:] for o in options if not o.startswith("--"))
    recursive = "r" in short.lower() or "--recursive" in options
    forced = "f" in short or "--force" in options
    for target in _operands(arguments):
        if not target.startswith("/"):
            continue
        plain = _normal(target)
        whole = _SYSTEM_ITSELF.fullmatch(plain.removesuffix("*")) is not None
        if (recursive and (whole or _SYSTEM.fullmatch(plain)) and (forced or not recursive_only)) or (
            not recursive_only and _SYSTEM.fullmatch(plain)
        ):
            return True
    return False


def _writes_device(name: str, arguments: list[str]) -> bool:
    if name == "dd":
        targets = [a[3:] for a in arguments if a.startswith("of=")]
    elif name == "tee":
        targets = _operands(arguments)
    elif name in ("cp", "mv", "ln", "install", "shred", "truncate"):
        targets = _operands(arguments)[-1:]
    else:
        return False
    return any(_normal(t).startswith("/dev/") and not SINKS.fullmatch(_normal(t)) for t in targets)


def _operands(arguments: list[str]) -> list[str]:
    """Arguments that are no options; everything after ``--``."""
    if "--" in arguments:
        at = arguments.index("--")
        return [a for a in arguments[:at] if not a.startswith("-")] + arguments[at + 1:]
    return [a for a in arguments if not a.startswith("-") or a == "-"]


def _values(arguments: list[str], short: str, long: str) -> list[str]:
    found = [a.removeprefix(long + "=") for a in arguments if a.startswith(long + "=")]
    found += [a[len(short):] for a in arguments if a.startswith(short) and len(a) > len(short)]
    return found + [after for option, after in pairwise(arguments) if option in (short, long)]


def _normal(path: str) -> str:
    """An absolute path without doubled slashes, ``.`` and ``..``: ``//usr/./lib/..`` is ``/usr``."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)
