"""What a session sees of a git configuration: nobody's name and no key, and everything else to the byte."""
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.workspace.gitconfig import neutral
from support import needs

PLAIN = b"""\
[core]
\trepositoryformatversion = 0
\tbare = false
[remote "origin"]
\turl = https://example.com/x.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin ; a comment
[alias]
\tlong = log \\
\t--oneline
"""

SECRET = rb"""
[user]
	name = Ada
	email = ada@example.com
	signingkey = \
	NONCE-continued
[Remote "origin"]
	url = https://bob:NONCE@example.com/x.git
	pushurl = "ssh://NONCE@example.com/x.git"
[http "https://example.com/"]
	extraHeader = AUTHORIZATION: basic NONCE
	cookieFile = /NONCE
[http]  extraheader = NONCE
	proxy = http://NONCE:NONCE@proxy
	sslVerify = true
[credential "https://example.com"]
	username = NONCE
	helper = !echo NONCE
[url "https://NONCE@example.com/"]
	insteadOf = gh:
[user.x] name = NONCE
[core]
	sshCommand = ssh -i /NONCE
	bare = false
"""


def test_what_holds_neither_is_the_same_to_the_byte() -> None:
    assert neutral(PLAIN) == PLAIN
    assert neutral(b"") == b""
    assert neutral(PLAIN.replace(b"\n", b"\r\n")) == PLAIN.replace(b"\n", b"\r\n")


def test_names_and_keys_are_gone_and_their_neighbours_stay(tmp_path: Path) -> None:
    left = neutral(SECRET)
    for gone in (b"NONCE", b"Ada", b"ada@", b"name ="):
        assert gone not in left
    needs.require("git")
    (tmp_path / "config").write_bytes(left)
    listed = subprocess.run(
        ["git", "config", "-f", tmp_path / "config", "-l"], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert listed == [
        "remote.origin.url=https://example.com/x.git", "remote.origin.pushurl=ssh://example.com/x.git",
        "http.sslverify=true", "url.https://example.com/.insteadof=gh:", "core.bare=false",
    ]  # fmt: skip


@given(st.binary(max_size=300))
def test_any_bytes_are_taken_and_nothing_is_added(text: bytes) -> None:
    left = neutral(text)
    assert len(left) <= len(text) + text.count(b"[")
    assert neutral(left) == left


@pytest.mark.parametrize("url", [b"https://a:b@h/p", b"http://tok@h:80/p", b"ftp://x@h"])
def test_userinfo_goes_wherever_a_url_stands(url: bytes) -> None:
    assert b"@" not in neutral(b"[x]\n\ty = " + url + b"\n")
