"""Sessions on disk: found by prefix, private, whole or not at all."""
from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec
import pytest

from supervisor.errors import StoreError
from supervisor.workspace.changes import ChangeSet, Entry, Kind, State
from supervisor.workspace.store import Decision, SessionRecord, Store, new_session_id


def record(session: str, **fields: object) -> SessionRecord:
    base = SessionRecord(
        id=session, kind="prompt", project=b"/p\xff", project_id="p", user="u", uid=1, started_us=1
    )
    return msgspec.structs.replace(base, **fields)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "a/b/state")


def test_a_record_is_read_back_and_private(store: Store) -> None:
    kept = record(new_session_id())
    store.save(kept)
    store.save(kept)
    assert store.load(kept.id) == kept
    assert store.records() == [kept]
    for path in [store.state.parent, store.state, *store.state.rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert [path.name for path in (store.sessions / kept.id).iterdir()] == ["session.json"]


def test_find(store: Store) -> None:
    ids = ["0" * 25 + "1", "0" * 25 + "2", "z" * 26]
    store.save(record(ids[0], decision=Decision.UNDECIDED))
    store.save(record(ids[1], decision=Decision.APPLIED))
    store.save(record(ids[2], decision=Decision.UNDECIDED, project_id="other"))
    assert store.find(None, "p").id == ids[0]
    assert store.find("Z", "p").id == ids[2]
    assert store.find(ids[1].upper(), "p").id == ids[1]
    for prefix, code in (("0", "ambiguous"), ("1", "not_found"), ("..", "not_found"), ("", "not_found")):
        with pytest.raises(StoreError) as caught:
            store.find(prefix, "p")
        assert caught.value.code == code
    store.decide(ids[0], Decision.ACCEPTED)  # and could not be applied
    assert store.find(None, "p").id == ids[0]
    assert store.decide(ids[0], Decision.REFUSED).decision is Decision.REFUSED
    with pytest.raises(StoreError):
        store.find(None, "p")


def test_changes_are_those_of_the_record(store: Store, tmp_path: Path) -> None:
    session = new_session_id()
    (tmp_path / "f").write_bytes(b"content")
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    found = store.blobs(session).put(fd)
    os.close(fd)
    changes = ChangeSet.of([Entry(b"f", None, State(Kind.FILE, 0o644, found.size, found.sha256, found.text))])
    store.save_changes(session, changes)
    store.save(record(session, collected=True, changes=changes.digest))
    assert store.load_changes(store.load(session)) == changes
    assert store.blobs(session).read(found.sha256) == b"content"
    (store.sessions / session / "blobs" / found.sha256).write_bytes(b"CONTENT")
    with pytest.raises(StoreError):
        store.blobs(session).read(found.sha256)
    with pytest.raises(StoreError):
        store.blobs(session).open("../../session.json")
    store.save_changes(session, ChangeSet(()))
    with pytest.raises(StoreError):
        store.load_changes(store.load(session))
    store.remove(session)
    assert store.records() == []


def test_a_damaged_record_is_told_by_load_only(store: Store) -> None:
    kept = record(new_session_id())
    store.save(kept)
    (store.sessions / kept.id / "session.json").write_text("{")
    assert store.records() == []
    with pytest.raises(StoreError) as caught:
        store.load(kept.id)
    assert caught.value.code == "record_damaged"
    with pytest.raises(StoreError):
        store.load("../../etc/passwd")
