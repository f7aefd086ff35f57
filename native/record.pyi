"""What an entry of the journal is: its hash, its envelope, its schema."""
from collections.abc import Mapping, Sequence

ENVELOPE: Mapping[str, str]
RECORD_VERSION: int
MAX_LINE: int
MAX_DEPTH: int
MAX_INTEGER: int

class Schema:
    """The closed set of events: name -> fields, each a key and a kind letter (T H U I B L, ``?`` for null)."""

    def __init__(self, forms: Mapping[str, Sequence[tuple[str, str]]]) -> None: ...
