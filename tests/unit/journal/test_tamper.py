"""What was done to a journal, and what the verifier says of it."""
from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.journal.verify import ExitCode, Finding, Verdict, verify, verify_all
from support import journals
from support.journal_oracle import ZERO, canonical, entries, head_of, line, rechain, seal

Edit = Callable[[list[bytes]], list[bytes]]


def jid(path: Path) -> str:
    return str(entries(path)[0]["jid"])


def lines(path: Path) -> list[bytes]:
    return [raw + b"\n" for raw in path.read_bytes().split(b"\n")[:-1]]


def verdict(path: Path) -> Verdict:
    return found(path).verdict


def found(path: Path) -> Finding:
    return next(f for f in verify([path]).findings if f.path == path)


def replaced(index: int, old: bytes, new: bytes) -> Edit:
    def edit(raws: list[bytes]) -> list[bytes]:
        assert old in raws[index]
        return [*raws[:index], raws[index].replace(old, new, 1), *raws[index + 1 :]]

    return edit


def relinked(index: int, old: bytes, new: bytes) -> Edit:
    """The same edit by somebody who knows the format: everything is hashed and linked anew."""
    def edit(raws: list[bytes]) -> list[bytes]:
        edited = replaced(index, old, new)(raws)
        return rechain(edited, json.loads(raws[0])["jid"])

    return edit


def swapped(raws: list[bytes]) -> list[bytes]:
    return [raws[0], raws[2], raws[1], *raws[3:]]


def last_digit(raws: list[bytes]) -> list[bytes]:
    digit = raws[2][-4:-3]
    return [*raws[:2], raws[2][:-4] + (b"1" if digit == b"0" else b"0") + raws[2][-3:], *raws[3:]]


def nfd(raws: list[bytes]) -> list[bytes]:
    return [unicodedata.normalize("NFD", raw.decode()).encode() for raw in raws]


def whole_file(edit: Callable[[bytes], bytes]) -> Edit:
    return lambda raws: [edit(b"".join(raws))]


def forged_after_close(raws: list[bytes]) -> list[bytes]:
    entry = json.loads(raws[3]) | {"_p": head_of(raws[-1]), "seq": len(raws)}
    del entry["~h"]
    return [*raws, line(entry, json.loads(raws[0])["jid"])]


def two_on_one_head(raws: list[bytes]) -> list[bytes]:
    entry = json.loads(raws[3]) | {"duration_us": 1}
    entry.pop("~h")
    return [*raws[:4], line(entry, json.loads(raws[0])["jid"]), *raws[4:]]


def clock_back(raws: list[bytes]) -> list[bytes]:
    mono = json.loads(raws[0])["mono"]
    return relinked(2, re.search(rb'"mono":\d+', raws[2])[0], b'"mono":%d' % (mono - 1))(raws)  # type: ignore[index]


TAMPERED: dict[str, Edit] = {
    "a bit in a value": replaced(1, b'"length":12', b'"length":13'),
    "a digit of a hash": last_digit,
    "a digit of a link": replaced(2, b'{"_p":"', b'{"_p":"0'),
    "a middle entry deleted": lambda raws: [*raws[:2], *raws[3:]],
    "the first entry deleted": lambda raws: raws[1:],
    "two swapped": swapped,
    "one replayed": lambda raws: [*raws[:2], raws[1], *raws[2:]],
    "a key twice": replaced(1, b'"length":12', b'"length":12,"length":12'),
    "a key twice, rechained": relinked(1, b'"length":12', b'"length":12,"length":12'),
    "white space": replaced(1, b'"length":12', b'"length": 12'),
    "white space, rechained": relinked(1, b'"length":12', b'"length": 12'),
    "a fraction": replaced(1, b'"length":12', b'"length":12.0'),
    "a fraction, rechained": relinked(1, b'"length":12', b'"length":12.0'),
    "another escape": replaced(0, "é".encode(), b"\\u00e9"),
    "another escape, rechained": relinked(0, "é".encode(), b"\\u00e9"),
    "another normal form": nfd,
    "CRLF": whole_file(lambda data: data.replace(b"\n", b"\r\n")),
    "an empty line at the end": whole_file(lambda data: data + b"\n"),
    "blanks at the end": whole_file(lambda data: data + b"  "),
    "an empty line in the middle": lambda raws: [raws[0], b"\n", *raws[1:]],
    "a byte order mark": whole_file(lambda data: b"\xef\xbb\xbf" + data),
    "a forged line after the close": forged_after_close,
    "two writers on one head": two_on_one_head,
    "the boot's clock back, rechained": clock_back,
    "an unknown field, rechained": relinked(1, b'"length":12', b'"length":12,"length2":12'),
    "an unknown event, rechained": relinked(1, b'"ev":"prompt"', b'"ev":"prompu"'),
    "a number skipped, rechained": relinked(2, b'"seq":2', b'"seq":3'),
    "all rechained": relinked(1, b'"length":12', b'"length":13'),
    "another uid, rechained": lambda raws: rechain([raw.replace(b'"uid":1000', b'"uid":1001') for raw in raws],
                                                   json.loads(raws[0])["jid"]),
    "the end of the last line changed": whole_file(lambda data: data[:-3] + b'")\n'),
}


@pytest.mark.parametrize("edit", TAMPERED.values(), ids=TAMPERED.keys())
def test_tampered(tmp_path: Path, edit: Edit) -> None:
    path = journals.write(tmp_path)
    path.write_bytes(b"".join(edit(lines(path))))
    assert verdict(path) is Verdict.TAMPERED
    assert verify_all(tmp_path).exit is ExitCode.TAMPERED


UNLINKED = {"all rechained", "another uid, rechained"}  # a chain without an anchor cannot tell: the stated limit


@pytest.mark.parametrize("name", TAMPERED)
def test_without_a_ledger_an_edit_is_found_as_well(tmp_path: Path, name: str) -> None:
    path = journals.write(tmp_path)
    path.write_bytes(b"".join(TAMPERED[name](lines(path))))
    (tmp_path / "ledger.jsonl").unlink()
    assert verdict(path) is (Verdict.UNSEALED if name in UNLINKED else Verdict.TAMPERED)


def test_intact(tmp_path: Path) -> None:
    path = journals.write(tmp_path)
    report = verify_all(tmp_path)
    assert report.exit is ExitCode.INTACT
    assert verdict(path) is Verdict.OK
    assert found(path).entries == 6


def test_a_bit_anywhere(tmp_path: Path) -> None:
    """Every byte of the file matters, those of the last line too."""
    path = journals.write(tmp_path)
    good = path.read_bytes()
    for at in range(len(good)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert verdict(path).exit in {ExitCode.TAMPERED, ExitCode.FAILED}, at


def test_tail_cut(tmp_path: Path) -> None:
    path = journals.write(tmp_path)
    good = lines(path)
    path.write_bytes(b"".join(good[:-1]))
    assert verdict(path) is Verdict.TRUNCATED
    path.write_bytes(b"".join(good[:-1]) + good[-1][:-20])
    assert verdict(path) is Verdict.TRUNCATED
    (tmp_path / "ledger.jsonl").unlink()
    path.write_bytes(b"".join(good[:-2]))
    assert verdict(path) is Verdict.UNSEALED


def test_emptied_and_removed(tmp_path: Path) -> None:
    path = journals.write(tmp_path)
    path.write_bytes(b"")
    assert verdict(path) is Verdict.TRUNCATED
    path.unlink()
    report = verify_all(tmp_path)
    assert [f.verdict for f in report.findings] == [Verdict.OK, Verdict.TRUNCATED]
    assert report.exit is ExitCode.TAMPERED


def test_torn_then_recovered_then_altered(tmp_path: Path) -> None:
    path = journals.write(tmp_path, close=False)
    whole = path.read_bytes()
    torn = whole[:-100]
    path.write_bytes(torn)
    assert verdict(path) is Verdict.TORN
    assert verify_all(tmp_path).exit is ExitCode.UNSEALED
    journals.reopen(tmp_path)
    data = path.read_bytes()
    assert data.startswith(torn + b"\n")  # nothing was cut off
    assert verdict(path) is Verdict.RECOVERED
    assert found(path).entries == 4 + 3
    altered = bytearray(data)
    altered[len(torn) - 5] ^= 1
    path.write_bytes(altered)
    assert verdict(path) is Verdict.TAMPERED
    begins = torn.rindex(b"\n") + 1
    path.write_bytes(data[:begins] + data[len(torn) + 1 :])  # the torn bytes taken out
    assert verdict(path) is Verdict.TAMPERED


def test_torn_in_the_recovery_as_well(tmp_path: Path) -> None:
    path = journals.write(tmp_path, close=False)
    path.write_bytes(path.read_bytes()[:-100])
    torn = path.stat().st_size
    journals.reopen(tmp_path, close=False)
    data = path.read_bytes()
    for cut in (torn + 2, torn + 50, torn + 300):
        path.write_bytes(data[:cut])
        assert verdict(path) is Verdict.TORN, cut
    journals.reopen(tmp_path)
    assert verdict(path) is Verdict.RECOVERED


def test_a_last_line_that_lacks_its_line_feed_only_is_a_good_entry(tmp_path: Path) -> None:
    path = journals.write(tmp_path, close=False)
    path.write_bytes(path.read_bytes()[:-1])
    assert verdict(path) is Verdict.TORN
    journals.reopen(tmp_path)
    assert verdict(path) is Verdict.RECOVERED
    assert found(path).entries == 5 + 3


@pytest.mark.parametrize("cut", range(1, 700, 7))
def test_whatever_a_crash_leaves_can_be_gone_on_with(tmp_path: Path, cut: int) -> None:
    path = journals.write(tmp_path, close=False)
    path.write_bytes(path.read_bytes()[:-cut])
    assert verdict(path) in {Verdict.TORN, Verdict.UNSEALED}
    journals.reopen(tmp_path)
    assert verdict(path) in {Verdict.RECOVERED, Verdict.OK}


def test_what_was_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    from supervisor.errors import JournalBroken

    path = journals.write(tmp_path, close=False)
    good = lines(path)
    path.write_bytes(b"".join(replaced(4, b'"code":-1', b'"code":-2')(good)))
    with pytest.raises(JournalBroken) as caught:
        journals.reopen(tmp_path)
    assert caught.value.code == "journal_damaged"
    closed = journals.write(tmp_path, "s2")
    with pytest.raises(JournalBroken) as caught:
        journals.reopen(tmp_path, "s2")
    assert caught.value.code == "journal_closed"
    assert verdict(closed) is Verdict.OK


def test_entries_of_another_journal(tmp_path: Path) -> None:
    one, other = journals.write(tmp_path, "s1"), journals.write(tmp_path, "s2")
    mixed = [*lines(one)[:3], *lines(other)[3:]]
    one.write_bytes(b"".join(mixed))
    assert verdict(one) is Verdict.TAMPERED
    one.write_bytes(other.read_bytes())
    assert verdict(one) is Verdict.TAMPERED  # good by itself, and not the one that stood there
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(other.read_bytes())
    assert verdict(copy) is Verdict.OK


def test_wall_clock_back_is_a_warning(tmp_path: Path) -> None:
    path = journals.write(tmp_path)
    raws = lines(path)
    back = rechain([*raws[:2], re.sub(rb'"at":"\d{4}', b'"at":"2001', raws[2]), *raws[3:]], jid(path))
    path.write_bytes(b"".join(back))
    (tmp_path / "ledger.jsonl").unlink()
    assert verdict(path) is Verdict.UNSEALED
    assert "wall clock" in found(path).warnings[0]


def test_unknown_version(tmp_path: Path) -> None:
    path = journals.write(tmp_path)
    path.write_bytes(b"".join(relinked(2, b'"v":1', b'"v":2')(lines(path))))
    assert verdict(path) is Verdict.UNSUPPORTED
    assert verify([path]).exit is ExitCode.FAILED
    path.write_bytes(b"".join(relinked(0, b'"alg":"sha256"', b'"alg":"sha3"')(lines(path))))
    assert verdict(path) is Verdict.UNSUPPORTED


def test_a_ledger_that_was_changed(tmp_path: Path) -> None:
    path, book = journals.write(tmp_path), tmp_path / "ledger.jsonl"
    book.write_bytes(b"".join(replaced(2, b'"entries":6', b'"entries":5')(lines(book))))
    report = verify([path])
    assert [f.path for f in report.findings] == [book, path]
    assert report.exit is ExitCode.TAMPERED


def test_a_line_that_is_linked_by_hand_to_a_genesis_of_ones_own(tmp_path: Path) -> None:
    """A whole journal invented under a session's name."""
    path = journals.write(tmp_path)
    entry = entries(path)[0] | {"jid": "f" * 32, "_p": ZERO}
    entry.pop("~h")
    path.write_bytes(seal(canonical(entry)[:-1], "f" * 32))
    assert verdict(path) is Verdict.TAMPERED


def test_files_that_are_none(tmp_path: Path) -> None:
    import os

    assert verify([tmp_path / "absent"]).exit is ExitCode.FAILED
    assert verify([tmp_path]).exit is ExitCode.FAILED
    os.mkfifo(tmp_path / "fifo.jsonl")
    assert verify([tmp_path / "fifo.jsonl"]).exit in {ExitCode.FAILED, ExitCode.UNSEALED}
    (tmp_path / "text.jsonl").write_text("hello\n")
    assert verdict(tmp_path / "text.jsonl") is Verdict.TAMPERED
    (tmp_path / "long.jsonl").write_bytes(b"x" * 200_000)
    assert verdict(tmp_path / "long.jsonl") is Verdict.TAMPERED
    (tmp_path / "deep.jsonl").write_bytes(b"[" * 60_000 + b"\n")
    assert verdict(tmp_path / "deep.jsonl") is Verdict.TAMPERED
    assert verify_all(tmp_path / "absent").exit is ExitCode.INTACT
    assert verify_all(tmp_path / "absent").lines() == ["no journal"]


def test_the_report_is_complete(tmp_path: Path) -> None:
    path = journals.write(tmp_path)
    path.write_bytes(b"".join(replaced(2, b'"seq":2', b'"seq":9')(lines(path))))
    report = verify([path])
    finding = report.as_json()["findings"][0]
    assert finding == {"path": str(path), "verdict": "tampered", "entries": 2, "reason": "its hash is another", "line": 3,
                       "offset": len(b"".join(lines(path)[:2])), "live": False, "warnings": []}
    assert "line 3" in report.lines()[0]
    json.dumps(report.as_json())
