"""Which names git, on any file system, would take for its own directory. Pure.

Nothing beneath such a name is ever shown in a diff or applied: a ``.git`` that a session wrote carries hooks and filters
that run on the developer's machine (B16). Wider than what Linux needs, because the developer's tree may be a case-folding
directory or be copied to one: any case, NTFS short names and streams, trailing dots and spaces, and the code points that
HFS+ ignores (git's own fsck refuses the same).
"""
from __future__ import annotations

import re
from typing import Final

# U+200C–200F, 202A–202E, 206A–206F, FEFF in UTF-8: HFS+ drops them when it compares names
_IGNORED: Final = re.compile(rb"\xe2\x80[\x8c-\x8f\xaa-\xae]|\xe2\x81[\xaa-\xaf]|\xef\xbb\xbf")
_SHORT: Final = re.compile(rb"git~\d+")


def is_git_name(name: bytes) -> bool:
    """Whether this single component means ``.git`` somewhere."""
    if len(name) < 4 or b"g" not in name.lower():
        return False
    plain = _IGNORED.sub(b"", name).split(b":", 1)[0].rstrip(b" .").lower()
    return plain == b".git" or _SHORT.fullmatch(plain) is not None


def in_git_directory(path: bytes) -> bool:
    """Whether a component of this relative path means ``.git``."""
    return any(is_git_name(part) for part in path.split(b"/"))
