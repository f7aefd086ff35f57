"""One machine with Debian's kernel for all tests of this directory.

A machine takes seconds to boot and each ``lemni`` in it a few more, since its processor is emulated: it is shared, and a test
leaves nothing in it but what is below its own person's home.
"""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from support import needs
from support.vm import Machine, Unavailable
from support.vm_people import PEOPLE, WORLD


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """The machine, booted once, with its people in it."""
    needs.require("vm")
    try:
        with Machine() as booted:
            made = booted.run("bash", "-c", WORLD, "world", *(f"{person.name}:{person.uid}" for person in PEOPLE))
            assert made.code == 0, str(made)
            yield booted
    except Unavailable as error:
        needs.lack("vm", str(error))
