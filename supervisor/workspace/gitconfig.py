"""A repository's git configuration as a session sees it: without who the developer is, and without what opens a forge. Pure.

Taken away: the sections ``user``, ``author``, ``committer``, ``credential`` and ``gpg``; ``http.…`` headers, cookies, proxies
and keys; ``core.askPass`` and ``core.sshCommand``; and what stands before the ``@`` of a URL, wherever one stands. Everything
else is as the developer wrote it, to the byte. See git-config(1), "CONFIGURATION FILE".
"""
from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_SECTIONS: Final = frozenset({b"user", b"author", b"committer", b"credential", b"gpg"})
_KEYS: Final = {
    b"http": frozenset({b"extraheader", b"cookiefile", b"proxy", b"sslkey", b"sslcert", b"proxyauthmethod"}),
    b"https": frozenset({b"proxy"}),
    b"core": frozenset({b"askpass", b"sshcommand", b"gitproxy"}),
    b"remote": frozenset({b"proxy"}),
    b"sendemail": frozenset({b"smtppass", b"smtpuser", b"smtpserver"}),
    b"imap": frozenset({b"user", b"pass"}),
}
_HEADER: Final = re.compile(rb'\s*\[\s*([A-Za-z0-9.-]+)(?:\s+"((?:[^"\\]|\\.)*)")?\s*\]')
_KEY: Final = re.compile(rb"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?==|$|[;#])")
_USERINFO: Final = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*://)[^/@\s\"']*@")


def neutral(text: bytes) -> bytes:
    """The configuration without identity and credentials; the same bytes where it has none."""
    section = b""
    kept = []
    for line in _lines(text):
        rest = line
        if (header := _HEADER.match(line)) is not None:
            section = header.group(1).lower().partition(b".")[0]
            rest = line[header.end() :]
        if section in _SECTIONS:
            continue
        key = _KEY.match(rest)
        if key is not None and key.group(1).lower() in _KEYS.get(section, ()):
            if header is None:
                continue
            line = line[: header.end()] + b"\n"
        kept.append(_USERINFO.sub(rb"\1", line))
    return b"".join(kept)


def _lines(text: bytes) -> Iterator[bytes]:
    """Logical lines: one that ends in a backslash goes on in the next."""
    held = b""
    for line in text.splitlines(keepends=True):
        held += line
        body = line.rstrip(b"\r\n")
        if (len(body) - len(body.rstrip(b"\\"))) % 2 == 0:
            yield held
            held = b""
    if held:
        yield held
