"""The door to ``native._files``: file operations beneath a directory descriptor, optionally as another file-system identity.

Only ``supervisor.workspace`` works through here; ``supervisor.sandbox.facts`` asks whether ``openat2`` is to be had. Each
function raises ``OSError`` with the errno of the system call. ``ids`` is a pair (uid, gid) that the call takes for its own
length and puts back, inside one C call (see files.c for why); None leaves the caller's. Names and paths are bytes without NUL.
"""
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from typing import Any, Final

from native import _files

Ids = tuple[int, int] | None

# openat2(2): how the kernel walks a path. Values of <linux/openat2.h>.
NO_XDEV: Final = 0x01
NO_MAGICLINKS: Final = 0x02
NO_SYMLINKS: Final = 0x04
BENEATH: Final = 0x08

NOREPLACE: Final = 1  # renameat2(2)
EXCHANGE: Final = 2

_BATCH = 256 << 10  # bytes of names asked of the kernel at once: one call for nearly every directory
_CHUNK = 3800  # bytes of a path given to one call: PATH_MAX is 4096 with its NUL


def _check(result: int, path: bytes) -> int:
    if result < 0:
        raise OSError(-result, os.strerror(-result), os.fsdecode(path))
    return result


def _name(path: bytes) -> bytes:
    if b"\0" in path:
        raise OSError(errno.EINVAL, "a path cannot hold a NUL byte", os.fsdecode(path.replace(b"\0", b"?")))
    return path


def _ids(ids: Ids) -> tuple[int, int]:
    return (-1, -1) if ids is None else ids


def openat2(
    directory: int,
    path: bytes,
    flags: int,
    *,
    mode: int = 0,
    resolve: int = BENEATH | NO_MAGICLINKS,
    ids: Ids = None,
) -> int:
    """openat2(2), always close-on-exec. ``EXDEV``: the path leads outside ``directory``; ``EAGAIN``: ask again."""
    return _check(_files.lib.files_open(directory, _name(path), flags, mode, resolve, *_ids(ids)), path)


def open_directory(root: int, path: bytes, *, flags: int = os.O_RDONLY, ids: Ids = None) -> int:
    """Open a directory beneath ``root`` without following any symbolic link, however long its path is.

    A path over PATH_MAX is opened in steps, each beneath the one before.
    """
    wanted = flags | os.O_DIRECTORY
    resolve = BENEATH | NO_SYMLINKS | NO_MAGICLINKS
    if len(path) <= _CHUNK:
        return openat2(root, path or b".", wanted, resolve=resolve, ids=ids)
    here = root
    try:
        rest = path
        while len(rest) > _CHUNK:
            cut = rest.rfind(b"/", 0, _CHUNK)
            if cut <= 0:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
            step = openat2(here, rest[:cut], os.O_PATH | os.O_DIRECTORY, resolve=resolve, ids=ids)
            if here != root:
                os.close(here)
            here, rest = step, rest[cut + 1 :]
        return openat2(here, rest, wanted, resolve=resolve, ids=ids)
    finally:
        if here != root:
            os.close(here)


def mkdirat(directory: int, name: bytes, mode: int, *, ids: Ids = None) -> None:
    """mkdirat(2); the umask applies."""
    _check(_files.lib.files_mkdir(directory, _name(name), mode, *_ids(ids)), name)


def unlinkat(directory: int, name: bytes, *, is_directory: bool = False, ids: Ids = None) -> None:
    """unlinkat(2): the name itself, never what it points to."""
    at_removedir = 0x200
    _check(_files.lib.files_unlink(directory, _name(name), at_removedir if is_directory else 0, *_ids(ids)), name)


def renameat2(source: int, name: bytes, target: int, new_name: bytes, flags: int = 0, *, ids: Ids = None) -> None:
    """renameat2(2): with NOREPLACE, ``EEXIST`` where the new name is taken."""
    _check(_files.lib.files_rename(source, _name(name), target, _name(new_name), flags, *_ids(ids)), new_name)


def whiteout(directory: int, name: bytes, *, ids: Ids = None) -> None:
    """Make an overlay's whiteout (character device 0:0), which hides ``name`` of the lower layer."""
    _check(_files.lib.files_whiteout(directory, _name(name), *_ids(ids)), name)


def clone(target: int, source: int) -> bool:
    """Share ``source``'s blocks with ``target`` copy-on-write (FICLONE). False where the file system cannot."""
    return bool(_files.lib.files_clone(target, source) == 0)


# Reused. The GIL is not held during the call, so a walk takes it out of the module; a second walk meanwhile makes its own.
_buffer: Any = None


def names(directory: int) -> Iterator[bytes]:
    """The names of an open directory in packed batches, without touching one inode.

    A batch is a NUL and a sequence of (type letter, name, NUL), so that every record stands between two NULs. Letters:
    d directory, f regular file, l symbolic link, o other. Neither "." nor "..", no order. (Some file systems do not tell
    types: only there each name is looked up.)
    """
    global _buffer
    buffer = _buffer if _buffer is not None else _files.ffi.new("char[]", _BATCH)
    _buffer = None
    try:
        while (size := _check(_files.lib.files_names(directory, buffer, _BATCH), b".")) > 0:
            batch = _files.ffi.buffer(buffer, size)[:]
            yield _with_types(directory, batch) if b"\0?" in batch else batch
    finally:
        _buffer = buffer


def unreadable(directory: int, batch: bytes, ids: Ids = None) -> list[bytes]:
    """The regular files of a batch that the caller may not read; by the modes, files and directories that these ids may not."""
    buffer = _files.ffi.new("char[]", batch)
    size = _files.lib.files_unreadable(directory, buffer, len(batch), *_ids(ids))
    return [record[1:] for record in bytes(_files.ffi.buffer(buffer, size)).split(b"\0") if record]


def _with_types(directory: int, batch: bytes) -> bytes:
    letters = {stat.S_IFDIR: b"d", stat.S_IFREG: b"f", stat.S_IFLNK: b"l"}
    out = b"\0"
    for record in batch[1:-1].split(b"\0"):
        name = record[1:]
        try:
            kind = stat.S_IFMT(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
        except OSError:
            continue  # gone meanwhile
        out += letters.get(kind, b"o") + name + b"\0"
    return out


def entries(directory: int) -> list[tuple[str, bytes]]:
    """The whole directory as sorted (type letter, name) pairs; for trees that are not walked for speed."""
    found = [(chr(record[0]), record[1:]) for batch in names(directory) for record in batch.split(b"\0") if record]
    return sorted(found, key=lambda pair: pair[1])
