"""The secret filter: what looks like a secret never reaches the journal in clear (JR-24).

Rules of our own, in three families: tokens that say by their form what they are; values that stand behind a telling name,
in English and in French (``mot_de_passe=``, ``MDP=``, ``jeton:``); operands that a program takes as a password
(``sshpass -p``, ``mysql -p…``). Base64 is looked into. A rule runs only where one of its keywords stands in the text, and
google-re2 runs in linear time whatever the text is, since the text is the adversary's.

A secret is replaced by ``[redacted:rule]``. Too much is better than too little, but a journal full of marks is of no use:
references (``$TOKEN``), file names and plain numbers behind ``max_tokens=`` stay. The filter is a net, not a proof.
"""
from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import re2  # type: ignore[import-untyped]

from supervisor.journal.shelltext import abridge, digest

TEXT_LIMIT = 1024  # bytes of UTF-8
PATH_LIMIT = 4096
COMMAND_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Rule:
    """``keywords``: lower-case, one of them is in every match. The secret is the first group that matched, else all."""

    name: str
    keywords: tuple[str, ...]
    pattern: str
    named: bool = False  # group 1 is the name that stands before the value, which may show that there is no secret


_NAME = (
    r"passwords?|passwd|passphrase|pwd|passcode|secrets?|tokens?|api[_-]?keys?|access[_-]?keys?|private[_-]?keys?|"
    r"account[_-]?keys?|auth[_-]?keys?|encryption[_-]?keys?|signing[_-]?keys?|master[_-]?keys?|credentials?|"
    r"mots?[_ -]?de[_ -]?passe|mot[_-]?passe|mdp|phrase[_ -]?(?:de[_ -]?passe|secr[eè]te)|code[_ -]?secret|jetons?|"
    r"cl[eé]s?[_ -]?(?:secr[eè]te|priv[eé]e|api|d['’]?acc[eè]s|de[_ -]?chiffrement)|identifiants?[_ -]?secrets?"
)
_NAME_KEYWORDS = (
    "passw", "passphrase", "passcode", "pwd", "secret", "token", "api", "key", "credential", "passe", "mdp", "secr", "jeton",
    "clé", "cle",
)
_VALUE = r"""(?:"([^"\n]+)"|'([^'\n]+)'|([^\s'"`;|&<>(),]+))"""

RULES: tuple[Rule, ...] = (
    # tokens by their form
    Rule("private-key", ("private key",),
         r"(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----.*?(?:-----END [A-Z0-9 ]*-----|\z)"),
    Rule("github", ("gh", "github_pat_"), r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{22,})"),
    Rule("gitlab", ("gl",), r"\bgl(?:pat|dt|ptt|rt|cbt|ft|imt|soat|agent|oas)-[A-Za-z0-9_.-]{16,}"),
    Rule("aws", ("akia", "asia", "abia", "acca"), r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b"),
    Rule("google", ("aiza", "ya29.", "gocspx-"),
         r"\b(?:AIza[A-Za-z0-9_-]{30,}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,})"),
    Rule("slack", ("xox", "xapp-", "hooks.slack.com"),
         r"\bxox[abceoprs]-[A-Za-z0-9-]{10,}|\bxapp-[A-Za-z0-9-]{10,}|hooks\.slack\.com/services/([A-Za-z0-9/_-]{20,})"),
    Rule("model-key", ("sk-",), r"\bsk-[A-Za-z0-9_-]{16,}"),
    Rule("stripe", ("k_live_", "k_test_", "whsec_"),
         r"\b(?:[prs]k_(?:live|test)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{16,})"),
    Rule("package-registry", ("npm_", "pypi-", "rubygems_", "dckr_", "cio"),
         r"\b(?:npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{16,}|rubygems_[a-f0-9]{40,}|"
         r"dckr_[po]at_[A-Za-z0-9_-]{20,}|cio[A-Za-z0-9]{32})\b"),
    Rule("service-token", ("hf_", "hvs.", "hvb.", "hvr.", "do", "sg.", "shp", "lin_api_", "dapi", "atatt", "glsa_", "eaa",
                           "sbp_", "fio-u-", "pmak-", "dop_", "ntn_", "secret_", "age-secret-key-"),
         r"\b(?:hf_[A-Za-z0-9]{30,}|hv[sbr]\.[A-Za-z0-9_-]{20,}|do[oprt]_v1_[a-f0-9]{40,}|SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}|"
         r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}|lin_api_[A-Za-z0-9]{32,}|dapi[a-f0-9]{32}|ATATT3[A-Za-z0-9_=-]{40,}|"
         r"glsa_[A-Za-z0-9]{32}_[a-f0-9]{8}|EAA[A-Za-z0-9]{60,}|sbp_[a-f0-9]{40}|PMAK-[a-f0-9-]{50,}|ntn_[A-Za-z0-9]{40,}|"
         r"secret_[A-Za-z0-9]{40,}|AGE-SECRET-KEY-1[0-9A-Z]{50,})"),
    Rule("telegram", (":aa",), r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{32,}"),
    Rule("jwt", ("eyj",), r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?"),
    # behind a telling name
    Rule("url-password", ("://",), r"""(?i)\b[a-z][a-z0-9+.-]*://[^\s/@:'"]*:([^\s/'"]+)@"""),
    Rule("url-token", ("://",), r"(?i)\b[a-z][a-z0-9+.-]*://([A-Za-z0-9_%.~-]{20,})@"),
    Rule("authorization", ("authorization", "x-api-key", "x-auth-token", "private-token", "apikey", "job-token",
                           "x-vault-token"),
         r"""(?i)\b(?:(?:proxy-)?authorization|x-api-key|x-auth-token|private-token|job-token|apikey|x-vault-token)["']?\s*[:=]\s*["']?"""
         r"""(?:(?:bearer|basic|token|digest|negotiate|apikey)\s+)?([^\s'"]{4,})"""),
    Rule("bearer", ("bearer",), r"(?i)\bbearer\s+([A-Za-z0-9._~+/=-]{8,})"),
    Rule("assignment", _NAME_KEYWORDS,
         rf"""(?i)([\w.-]*(?:{_NAME}|\bpass|_pass)[\w.-]*)["']?\s*(?::=|=>|=|:)\s*{_VALUE}""", named=True),
    Rule("option", _NAME_KEYWORDS, rf"(?i)(?:^|\s)(--?(?:[\w-]*-)?(?:{_NAME}|pass))(?:\s+|=){_VALUE}", named=True),
    Rule("sentence", ("mot de passe", "password", "passphrase", "mdp"),
         rf"""(?i)\b(?:mot de passe|password|passphrase|mdp)\s+(?:est|is|vaut)\s*:?\s*{_VALUE}"""),
    # operands that a program takes as a password
    Rule("sshpass", ("sshpass",), rf"\bsshpass\s+(?:-[^p\s]\S*\s+)*-p\s*{_VALUE}"),
    Rule("database-client", ("mysql", "mariadb"),
         rf"\b(?:mysql|mysqldump|mysqladmin|mysqlimport|mariadb\S*)\b[^|;&\n]*?\s-p{_VALUE}"),
    Rule("user-password", ("curl", "http", "wget", "-u", "--user"),
         r"""(?:^|\s)(?:-u|--user|--proxy-user)[ =]?["']?[^\s:'"/]+:([^\s'"]+)"""),
    Rule("login", ("login",), rf"\blogin\b[^|;&\n]*?\s-p[ =]?{_VALUE}"),
    Rule("openssl-pass", ("pass:",), rf"(?:^|\s)-?pass(?:in|out)?\s+[\"']?pass:{_VALUE}"),
    Rule("redis", ("redis-cli",), rf"\bredis-cli\b[^|;&\n]*?\s-a\s+{_VALUE}"),
    Rule("ldap", ("ldap",), rf"\bldap(?:search|modify|add|delete|passwd|whoami)\b[^|;&\n]*?\s-w\s*{_VALUE}"),
    Rule("samba", ("smb", "rpcclient"),
         r"""\b(?:smbclient|smbget|rpcclient|smbmap)\b[^|;&\n]*?\s-U\s*["']?[^\s%'"]+%([^\s'"]+)"""),
    Rule("archive", ("zip", "7z", "7za"), rf"\b(?:zip|unzip)\b[^|;&\n]*?\s-P\s*{_VALUE}|\b7za?\b[^|;&\n]*?\s-p{_VALUE}"),
    Rule("htpasswd", ("htpasswd",), rf"\bhtpasswd\s+-\w*b\w*\s+(?:\S+\s+)?\S+\s+{_VALUE}"),
    Rule("piped-password", ("sudo", "chpasswd", "passwd", "cryptsetup"),
         r"""\b(?:echo|printf)\s+(?:-\w+\s+)*["']?([^\n|]+?)["']?\s*\|\s*(?:sudo\s+(?:-\S+\s+)*-\w*S|(?:sudo\s+)?(?:chpasswd|passwd|cryptsetup))\b"""),
)

_BASE64 = r"[A-Za-z0-9+/_-]{24,}={0,2}"
_HARMLESS_NAME = re.compile(
    r"(?i)(?:[_.-]|\b)(?:file|path|dir|folder|name|url|uri|len|length|count|type|policy|prompt|ttl|limit|size|expir\w*|regex|"
    r"pattern|manager|store|helper|budget)s?\Z|^(?:max|min|n|num)[_.-]")
_HARMLESS_VALUE = re.compile(
    r"(?i)\$|%[({]|\{\{|<|=|\[redacted|\*+\Z|x+\Z|\.{3}|"
    r"(?:true|false|null|none|nil|yes|no|on|off|str|string|int|bytes|optional|required|self|undefined)\Z")
_SHOWN = re.compile(r"[\ud800-\udfff\\]")


@functools.cache
def _compiled(rule: Rule) -> Any:
    return re2.compile(rule.pattern)


@functools.cache
def _keywords() -> Any:
    """One automaton for all keywords, and for the shape of base64: most texts end here."""
    words = sorted({re2.escape(word) for rule in RULES for word in rule.keywords})
    return re2.compile(f"(?i){'|'.join(words)}|{_BASE64}")


@functools.cache
def _base64() -> Any:
    return re2.compile(_BASE64)


def redact(text: str) -> str:
    """The text with each secret replaced by ``[redacted:rule]``. Lone surrogates must be gone already."""
    if not _keywords().search(text):
        return text
    parts, at = [], 0
    for start, end, name in sorted(_found(text), key=lambda found: (found[0], -found[1])):
        if end <= at:
            continue
        if start >= at:
            parts += [text[at:start], f"[redacted:{name}]"]
        at = end
    return "".join(parts) + text[at:]


def _found(text: str, inside: bool = False) -> Iterator[tuple[int, int, str]]:
    lower = text.lower()
    for rule in RULES:
        if any(word in lower for word in rule.keywords):
            for match in _compiled(rule).finditer(text):
                groups = range(2 if rule.named else 1, len(match.groups()) + 1)
                group = next((g for g in groups if match.group(g)), 0)
                if rule.named and _harmless(match.group(1), match.group(group)):
                    continue
                if group and _HARMLESS_VALUE.match(match.group(group)):
                    continue
                yield (*match.span(group), rule.name)
    if not inside:
        for match in _base64().finditer(text):
            if _wraps_secret(match.group(0)):
                yield (*match.span(0), "base64")


def _harmless(name: str, value: str) -> bool:
    """A name that tells of no secret after all: a file's, a number's, the shell's own PWD."""
    name = name.lstrip("-")
    if name in ("PWD", "OLDPWD") or _HARMLESS_NAME.search(name):
        return True
    return "token" in name.lower() and value.isdigit()


def _wraps_secret(run: str) -> bool:
    """Whether base64 (either alphabet, padded or not) hides what a rule finds."""
    body = run.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        inner = base64.b64decode(body + "=" * (-len(body) % 4), validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        return False
    return inner.isprintable() and next(_found(inner, inside=True), None) is not None


def _shown(text: str, backslash: bool) -> str:
    """Bytes that are no UTF-8 as ``\\xNN``, other lone surrogates as ``\\uNNNN``; backslashes doubled where asked for."""
    def show(match: re.Match[str]) -> str:
        code = ord(match[0])
        if code == 0x5C:
            return "\\\\" if backslash else "\\"
        return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"

    return _SHOWN.sub(show, text)


def _clipped(text: str, limit: int) -> str:
    data = text.encode("utf-8")
    if len(data) <= limit:
        return text
    return data[:limit].decode("utf-8", "ignore") + f"… {digest(text)}"


def clean_text(text: str) -> str:
    """Words that others had a hand in: filtered, then at most 1 KiB (a digest says that there was more)."""
    return _clipped(redact(_shown(text, backslash=False)), TEXT_LIMIT)


def clean_path(path: str) -> str:
    """A path, unambiguous: backslash doubled, other bytes as ``\\xNN``; filtered, at most 4 KiB."""
    return _clipped(redact(_shown(path, backslash=True)), PATH_LIMIT)


def clean_command(command: str) -> str:
    """A command's text: carried data replaced by digests, then filtered, then at most 4 KiB."""
    return _clipped(redact(_shown(abridge(command), backslash=False)), COMMAND_LIMIT)
