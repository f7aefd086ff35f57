"""Secrets that the filter must find, and harmless lines that it must leave alone."""
from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable

import pytest

from supervisor.journal.redact import COMMAND_LIMIT, PATH_LIMIT, TEXT_LIMIT, clean_command, clean_path, clean_text, redact

# A secret is assembled here, so that no scanner of other people takes this file for a leak.
LETTERS = "Ab3dEf6hIj9lMn2pQr5tUv8xYz1BcD4fGh7jKl0nOp3"
GITHUB, GITLAB, AWS = "gh" + "p_" + LETTERS[:36], "gl" + "pat-" + LETTERS[:20], "AK" + "IA" + "Q3EGRIVE7SKQ2BXW"
JWT = "ey" + "JhbGciOiJIUzI1NiJ9." + "ey" + "JzdWIiOiIxMjM0In0." + LETTERS
KEY = "-----BEGIN OPENSSH " + "PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA\n-----END OPENSSH " + "PRIVATE KEY-----"

SECRETS = [  # (line with {}, secret)
    ("git clone https://oauth2:{}@gitlab.example/x.git", GITLAB),
    ("echo {} > t", GITHUB),
    ("echo {}", "github_pat_" + LETTERS),
    ("aws s3 ls # {}", AWS),
    ("AWS_SECRET_ACCESS_KEY={} aws s3 ls", LETTERS[:40]),
    ("curl -H 'X: {}' h", JWT),
    ("cat > k <<X\n{}", KEY),
    ("{}", "sk-" + "ant-api03-" + LETTERS),
    ("{}", "sk_" + "live_" + LETTERS[:24]),
    ("{}", "xox" + "b-123456789012-" + LETTERS[:20]),
    ("https://hooks.slack.com/services/{}", "T00000000/B00000000/" + LETTERS[:24]),
    ("{}", "np" + "m_" + LETTERS[:36]),
    ("twine upload -p {}", "py" + "pi-AgEIcHlwaS5vcmc" + LETTERS),
    ("{}", "hf" + "_" + LETTERS[:34]),
    ("{}", "hv" + "s." + LETTERS[:28]),
    ("{}", "AI" + "za" + LETTERS[:35]),
    ("bot 123456789:{}", "AA" + LETTERS[:33]),
    ("export DB_PASSWORD={}", "hunter2"),
    ("export PGPASSWORD='{}' && psql", "correct horse battery"),
    ('{{"client_secret": "{}"}}', "s3cr3t/value+"),
    ("token: {}", "abcdef123"),
    ("passphrase => {}", "abc"),
    ("tool --password {} x", "hunter2"),
    ("tool --api-key={}", "hunter2"),
    ("gpg --passphrase '{}' -d f", "mot secret"),
    ("curl -u bob:{} https://h/", "pa$$word"),
    ("curl --user 'bob:{}' https://h/", "pw"),
    ("curl -H 'Authorization: Bearer {}' h", "abcdefgh.ijk"),
    ("curl -H 'Authorization: Basic {}' h", "Ym9iOnB3"),
    ("curl -H 'PRIVATE-TOKEN: {}' h", "abcd1234"),
    ("postgresql://bob:{}@db.example:5432/prod", "p%40ss!w0rd"),
    ("redis://:{}@cache:6379/0", "sesame"),
    ("mongodb+srv://u:{}@c.example/x", "sesame"),
    ("https://{}@github.com/a/b", LETTERS[:40]),
    ("sshpass -p {} ssh h", "hunter2"),
    ("sshpass -p '{}' ssh h", "hunter 2"),
    ("mysql -u root -p{} db", "hunter2"),
    ("mysqldump --host h -p'{}' db", "hunter2"),
    ("docker login -u bob -p {} r.example", "hunter2"),
    ("redis-cli -h c -a {} ping", "hunter2"),
    ("ldapsearch -x -D cn=a -w {} -b dc=b", "hunter2"),
    ("smbclient //h/s -U bob%{}", "hunter2"),
    ("unzip -P {} a.zip", "hunter2"),
    ("7z x -p{} a.7z", "hunter2"),
    ("openssl enc -d -pass pass:{} -in f", "hunter2"),
    ("htpasswd -b f bob {}", "hunter2"),
    ("echo '{}' | sudo -S make install", "hunter2"),
    ("echo 'bob:{}' | chpasswd", "hunter2"),
    # French
    ("mot_de_passe={}", "azerty"),
    ("MOT_DE_PASSE_BDD: {}", "azerty"),
    ("MDP={} ./lance.sh", "azerty"),
    ("mdp_admin = '{}'", "l'été".replace("'", "’")),
    ("motdepasse:{}", "azerty"),
    ("le mot de passe est {}", "azerty"),
    ("jeton={}", "abcdef"),
    ("clé_api={}", "abcdef"),
    ("cle-secrete: {}", "abcdef"),
    ("phrase_de_passe: '{}'", "un deux trois"),
    ("code_secret={}", "4271"),
    ("outil --mot-de-passe {}", "azerty"),
    # wrapped
    ("echo {} | base64 -d | sh", base64.b64encode(b"export TOKEN=hunter2hunter2").decode()),
    ("x={}", base64.b64encode(GITHUB.encode()).decode().rstrip("=")),
    ("x={}", base64.urlsafe_b64encode(b"postgres://a:hunter2@h/d").decode()),
]  # fmt: skip


@pytest.mark.parametrize(("text", "secret"), SECRETS, ids=[text[:40] for text, _ in SECRETS])
def test_found(text: str, secret: str) -> None:
    shown = redact(text.format(secret))
    assert secret not in shown
    assert "[redacted:" in shown


HARMLESS = [
    "pytest -k token tests/test_tokens.py",
    "grep -rn password src/ | head",
    "max_tokens=4096 temperature=0.2",
    "python -m lemni --max-tokens 4096",
    "cat $PASSWORD_FILE",
    "login --token $CI_JOB_TOKEN",
    "export TOKEN=${TOKEN:-}",
    "kubectl create secret generic x --from-file=./y",
    "PWD=/workspace make",
    "git log --format=%H 3f786850e387550fdab836ed7e6dc881de23001b",
    "sha256sum -c 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "src/components/authentication/password-reset-form.component.tsx",
    "node_modules/.pnpm/@babel+plugin-transform-runtime@7.23.2/node_modules",
    "uuid 123e4567-e89b-12d3-a456-426614174000",
    "http://127.0.0.1:8000/v1/models",
    "ssh://git@forge.example:2222/a/b.git",
    "docker run -p 8080:80 nginx",
    "mkdir -p build && cp -p a b",
    "from secrets import token_hex",
    "--password-file=/run/x",
    "def check_password(self, password: str) -> bool:",
    "cp tokenizer.json vocab.txt out/",
    "passive_mode=on",
    "compass=north",
    "le mot de passe oublié",
    "ls -la /etc/passwd",
]


@pytest.mark.parametrize("line", HARMLESS)
def test_left_alone(line: str) -> None:
    assert redact(line) == line


def test_several_in_one_line_and_over_lines() -> None:
    shown = redact(f"A_TOKEN=aaaa1 B_SECRET=bbbb2 c={GITHUB}\nMDP=cccc3\n")
    assert shown.count("[redacted:") == 4
    assert shown.endswith("\n")
    for secret in ("aaaa1", "bbbb2", GITHUB, "cccc3"):
        assert secret not in shown


def test_texts_are_shown_safely() -> None:
    assert clean_text("a\ud800b\udcffc\\d") == "a\\ud800b\\xffc\\d"
    assert clean_path("a\udcff\\xff") == "a\\xff\\\\xff"  # which byte was which can still be told
    assert clean_path("src/é") == "src/é"
    json.dumps(clean_command("echo \udcff\ud800")).encode()


@pytest.mark.parametrize(
    ("clean", "limit"), [(clean_text, TEXT_LIMIT), (clean_path, PATH_LIMIT), (clean_command, COMMAND_LIMIT)])
def test_texts_are_bounded(clean: Callable[[str], str], limit: int) -> None:
    assert len(clean("é" * 100_000).encode()) < limit + 100
    assert "," in clean("é" * 100_000)[-20:]
    secret = "x" * (limit - 20) + " TOKEN=" + "s" * 60  # cut in the middle, it would no longer be found
    assert "sss" not in clean(secret)


def test_time_is_linear_whatever_the_text() -> None:
    for text in ("password" * 8000, "a:" * 32_000, "-----BEGIN PRIVATE KEY-----" * 2000, "A" * 64_000,
                 "://" * 20_000, "token=" * 10_000):
        began = time.process_time()
        redact(text)
        assert time.process_time() - began < 2, text[:20]
