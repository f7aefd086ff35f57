"""The one writer of a session's journal: on disk before the act, batched otherwise, silent for ever after an error.

Entries are serialised and chained at once, on the event loop, into a batch in memory. One thread of the journal's own
writes: while it is busy the next batch grows, so that a group of entries costs one ``write`` and one ``fdatasync``. An
entry with ``sync`` is on disk when ``write`` returns; the others are written as soon as the thread is free and synced
at most 200 ms later. After the first error every call raises ``JournalBroken``: what cannot be recorded must not happen.

Leaving without ``close`` (a crash of the session) flushes what there is; the journal then stays unsealed.
"""
from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path

import trio

from native.chain import Chain, Refused
from supervisor.errors import EntryRefused, JournalBroken
from supervisor.journal import ledger
from supervisor.journal.appendfile import AppendFile, copy_of
from supervisor.journal.entry import Event, Frame, JournalClosed, JournalOpened, SessionClosed, values
from supervisor.journal.tail import begin, now, resume
from supervisor.journal.thread import SyncThread
from supervisor.types import Identity

SYNC_AFTER = 0.2  # seconds after which what was written without sync is synced all the same
BATCH = 1 << 20  # bytes in memory above which a writer waits for the thread
LEAVE = 10.0  # seconds that leaving may take on a disk that does not answer


class Journal:
    """Made by ``Journal.open``. For one task after the other: entries stand in the order of the calls."""

    def __init__(self, path: Path, identity: Identity, session: str) -> None:
        self.path = path
        self._identity, self._session = identity, session
        self._thread = SyncThread(self._is_dirty, self._settle, SYNC_AFTER, self._fail)
        self._file: AppendFile | None = None
        self._chain: Chain
        self._jid = ""
        self._busy = False
        self._synced = -1  # seq of the last entry known to be on disk
        self._wanted = -1  # seq of the last entry that somebody waits to be on disk
        self._news = trio.lowlevel.ParkingLot()  # woken after each batch
        self._broken: JournalBroken | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, directory: Path, session: str, identity: Identity, frame: Frame) -> AsyncIterator[Journal]:
        """A new journal ``directory/session.jsonl``; the frame is on disk and in the ledger when the body begins.

        Raises JournalBroken: no act may take place (JR-10). Nobody else can write the file while it is open.
        """
        journal = cls(directory / f"{session}.jsonl", identity, session)
        async with journal._running(partial(journal._create, frame)):
            yield journal

    @classmethod
    @contextlib.asynccontextmanager
    async def reopen(cls, directory: Path, session: str, identity: Identity) -> AsyncIterator[Journal]:
        """Go on with the journal of a session that crashed. What it tore is named by an entry, never cut off."""
        journal = cls(directory / f"{session}.jsonl", identity, session)
        async with journal._running(journal._continue):
            yield journal

    async def write(self, event: Event, *, sync: bool = False, agent: str = "main", sub: str | None = None) -> int:
        """Append an event; return its ``seq``. With ``sync`` it is on disk when this returns.

        Raises JournalBroken, for ever after the first error; EntryRefused for a value without canonical form: nothing was
        written then, and the journal goes on. Cancelled while it waits for the disk, the entry stands all the same.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        seq = self._append(event, agent, sub)
        if sync:
            await self._until_synced(seq)
        else:
            self._hand_over()
            await trio.lowlevel.cancel_shielded_checkpoint()
            while self._chain.pending > BATCH and self._broken is None:
                await self._news.park()
        return seq

    async def close(self, event: SessionClosed) -> None:
        """The last entry, on disk, and the head in the ledger: the journal is complete. Nothing is written after it."""
        with self._bounded():
            seq = self._append(event, "main", None)
            head = self._chain.head
            await self._until_synced(seq)
            self._broken = JournalBroken("writing the journal", on=str(self.path), why="it is closed", code="journal_closed")
            sealed = JournalClosed(journal=self._jid, head=head, entries=seq + 1)
            await self._thread.run(partial(ledger.record, self.path.parent, self._identity, self._session, sealed))

    def _append(self, event: Event, agent: str, sub: str | None) -> int:
        if self._broken is not None:
            raise copy_of(self._broken)
        try:
            return self._chain.append(event.EV, values(event), *now(), agent, sub)
        except Refused as error:
            raise EntryRefused("writing a journal entry", on=event.EV, why=str(error)) from None

    async def _until_synced(self, seq: int) -> None:
        self._wanted = max(self._wanted, seq)
        self._hand_over()
        while self._synced < seq:
            if self._broken is not None:
                raise copy_of(self._broken)
            await self._news.park()

    def _hand_over(self) -> None:
        """Give the batch to the thread, if it is free and there is something to do."""
        sync = self._wanted > self._synced
        if self._busy or self._broken is not None or not (self._chain.pending or sync):
            return
        self._busy = True
        seq, batch = self._chain.seq - 1, self._chain.take()
        self._thread.post(partial(self._put, batch, sync), partial(self._done, seq, sync))

    def _put(self, batch: bytes, sync: bool) -> None:
        """In the thread."""
        assert self._file is not None
        self._file.append(batch)
        if sync:
            self._file.sync()

    def _done(self, seq: int, synced: bool, error: BaseException | None) -> None:
        """Back on the event loop: what was handed over, up to ``seq``, is written, or nothing ever will be."""
        self._busy = False
        if error is not None:
            self._fail(error)
        else:
            if synced:
                self._synced = seq
            self._hand_over()
        self._news.unpark_all()

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, JournalBroken):
            error = JournalBroken("writing the journal", on=str(self.path), why=repr(error))
        self._broken = self._broken or error
        self._news.unpark_all()

    @contextlib.asynccontextmanager
    async def _running(self, start: Callable[[], None]) -> AsyncIterator[None]:
        self._thread.start()
        try:
            await self._thread.run(start)
            self._synced = self._chain.seq - 1
            try:
                yield
            except BaseException:
                with contextlib.suppress(JournalBroken):  # the body's own error says more
                    await self._flush()
                raise
            await self._flush()
        finally:
            with trio.move_on_after(LEAVE, shield=True):
                await self._thread.stop(self._close_file)

    async def _flush(self) -> None:
        if self._broken is None:
            with self._bounded():
                await self._until_synced(self._chain.seq - 1)

    @contextlib.contextmanager
    def _bounded(self) -> Iterator[None]:
        """Work that must be done even when the session is cancelled, but not for ever."""
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVE) as scope:
            yield
        if scope.cancelled_caught:
            silent = JournalBroken("writing the journal", on=str(self.path), why=f"the disk did not answer for {LEAVE:.0f} s")
            self._fail(silent)
            raise silent

    def _create(self, frame: Frame) -> None:
        """In the thread: file, entry 0, its line in the ledger; each on disk before the next."""
        self._file = AppendFile.create(self.path)
        self._chain, self._jid = begin(frame, self._identity, self._session)
        self._file.append(self._chain.take())
        self._file.sync()
        opened = JournalOpened(journal=self._jid, head=self._chain.head)
        ledger.record(self.path.parent, self._identity, self._session, opened)

    def _continue(self) -> None:
        self._file = AppendFile.open(self.path)
        self._chain, self._jid = resume(self._file, self._identity, self._session)

    def _is_dirty(self) -> bool:
        return self._file is not None and self._file.dirty

    def _settle(self) -> None:
        if self._file is not None:
            self._file.sync()

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
