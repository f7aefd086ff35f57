"""A model key that does not print, and the two places that it may come from: an environment variable or a file.

The key is in this process alone. A sandbox child gets no environment and no memory of it, and the journal has no field for it.
"""
from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from agent.errors import SecretError

_MAX_KEY = 8192  # bytes; signed tokens reach two or three thousand
_HIDDEN = "Secret(…)"


class Secret:
    """A text that shows itself only to ``reveal``. It does not print, format, compare, hash or pickle its content."""

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        """The content: for the one header that needs it."""
        return self.__value

    def redact(self, text: str) -> str:
        """``text`` with every occurrence of the secret hidden: servers quote keys in their error messages."""
        return text.replace(self.__value, "[key]")

    def __repr__(self) -> str:
        return _HIDDEN

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return _HIDDEN

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret is not stored")


def secret_from_environment(variable: str, environment: Mapping[str, str] = os.environ) -> Secret:
    """The key in an environment variable; ``SecretError`` where it is unset, empty or no key."""
    value = environment.get(variable)
    if value is None:
        raise SecretError(
            "reading the model's key", on=variable, why="the variable is not set",
            remedy=f"export {variable}=… or remove apiKeyEnv from the configuration",
        )
    return _checked(value, variable)


def secret_from_file(path: Path) -> Secret:
    """The key in a file, without its last line end; ``SecretError`` where others can read the file, or it is no key.

    Checked on the open descriptor, so that the file that is judged is the file that is read.
    """
    doing = "reading the model's key"
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError as error:
        raise SecretError(doing, on=str(path), errno=error.errno, remedy="check apiKeyFile in the configuration") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise SecretError(doing, on=str(path), why="it is no regular file")
        if status.st_mode & stat.S_IROTH:
            raise SecretError(
                doing, on=str(path), why=f"every user can read it (mode {status.st_mode & 0o777:o})", remedy=f"chmod 600 {path}"
            )
        content = os.read(fd, _MAX_KEY + 2)  # one read: a regular file gives all that it has
    except OSError as error:
        raise SecretError(doing, on=str(path), errno=error.errno) from None
    finally:
        os.close(fd)
    return _checked(content.decode("ascii", "replace").removesuffix("\n").removesuffix("\r"), str(path))


def _checked(value: str, origin: str) -> Secret:
    """A key goes into a header: it is printable ASCII without blanks, so that it can add no line to the request."""
    doing = "reading the model's key"
    if not value:
        raise SecretError(doing, on=origin, why="it is empty")
    if len(value) > _MAX_KEY:
        raise SecretError(doing, on=origin, why=f"it is longer than {_MAX_KEY} bytes")
    if not all("!" <= char <= "~" for char in value):
        raise SecretError(doing, on=origin, why="it holds a blank, a control character or a letter outside ASCII")
    return Secret(value)
