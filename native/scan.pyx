# cython: boundscheck=False, wraparound=False, cdivision=True
"""Verifies the journal's hash chain at the speed of the hash, without building a Python object per entry.

It is strict: any second way of writing the same value would be a second journal with the same meaning. A line is looked
at in a fixed order, and its first fault is the one that is named: framing, link, hash, canonical form, version, number,
schema, then the clock of its boot.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.string cimport memchr, memcmp, memcpy, memset

from native.record cimport (
    C_MAX_DEPTH,
    C_MAX_LINE,
    CONTROL,
    MAX_HEX,
    MAX_KEYS,
    MULTIBYTE,
    PLAIN,
    PREFIX,
    QUOTE,
    SUFFIX,
    Digester,
    EventForm,
    KeyForm,
    Schema,
    all_hex,
    byte_kind,
    max_integer,
    short_escape,
)

# faults of a line, in the order in which they are looked for
cdef enum Fault:
    NONE, FRAMING, LINK, HASH, CANONICAL, VERSION, SEQ, SCHEMA, CLOCK, AFTER_CLOSE

FAULTS = ("", "framing", "link", "hash", "canonical", "version", "seq", "schema", "clock", "after_close")

cdef struct Cursor:
    const unsigned char *at
    const unsigned char *end

cdef struct Span:
    const unsigned char *at
    int size
    char kind  # T I B L(texts) M(other list) O n

cdef struct Member:
    const unsigned char *key
    int size
    Span value


cdef bint _skip_utf8(Cursor *c) noexcept nogil:
    """One character of two to four bytes, as strict as RFC 3629: no overlong form, no surrogate, at most U+10FFFF."""
    cdef const unsigned char *p = c.at
    cdef Py_ssize_t left = c.end - p
    cdef unsigned char lead = p[0], low = 0x80, high = 0xBF
    cdef int more, i
    if 0xC2 <= lead <= 0xDF:
        more = 1
    elif 0xE0 <= lead <= 0xEF:
        more = 2
        if lead == 0xE0:
            low = 0xA0
        elif lead == 0xED:
            high = 0x9F
    elif 0xF0 <= lead <= 0xF4:
        more = 3
        if lead == 0xF0:
            low = 0x90
        elif lead == 0xF4:
            high = 0x8F
    else:
        return False
    if left <= more or not low <= p[1] <= high:
        return False
    for i in range(2, more + 1):
        if not 0x80 <= p[i] <= 0xBF:
            return False
    c.at = p + more + 1
    return True


cdef bint _skip_string(Cursor *c) noexcept nogil:
    """A string in its one canonical spelling; the cursor is on its opening quote."""
    cdef unsigned char e
    cdef int kind
    if c.at >= c.end or c.at[0] != c'"':
        return False
    c.at += 1
    while c.at < c.end:
        kind = byte_kind(c.at[0])
        if kind == PLAIN:
            c.at += 1
        elif kind == QUOTE:
            c.at += 1
            return True
        elif kind == MULTIBYTE:
            if not _skip_utf8(c):
                return False
        elif kind == CONTROL or c.end - c.at < 2:
            return False
        else:
            e = c.at[1]
            if e == c'u':
                if not _control_escape(c):
                    return False
                c.at += 6
            elif e == c'"' or e == c'\\' or e == c'b' or e == c't' or e == c'n' or e == c'f' or e == c'r':
                c.at += 2
            else:
                return False
    return False


cdef bint _control_escape(Cursor *c) noexcept nogil:
    """\\u00XX, lower-case, of a control character that has no shorter escape: nothing else is written that way."""
    cdef unsigned char high, low, value
    if c.end - c.at < 6 or c.at[2] != c'0' or c.at[3] != c'0':
        return False
    high, low = c.at[4], c.at[5]
    if not (high == c'0' or high == c'1') or not all_hex(&low, 1):
        return False
    value = (high - c'0') * 16 + (low - c'0' if low <= c'9' else low - c'a' + 10)
    return not short_escape(value)


cdef bint _skip_integer(Cursor *c) noexcept nogil:
    cdef long long value = 0
    cdef int size = 0
    cdef bint minus = c.at[0] == c'-'
    if minus:
        c.at += 1
    while c.at < c.end and c'0' <= c.at[0] <= c'9':
        if size and value == 0:
            return False  # a leading zero
        value = 10 * value + (c.at[0] - c'0')
        size += 1
        if size > 16:
            return False
        c.at += 1
    return size > 0 and value <= max_integer() and not (minus and value == 0)


cdef bint _skip_word(Cursor *c, const char *word, int size) noexcept nogil:
    if c.end - c.at < size or memcmp(c.at, word, size) != 0:
        return False
    c.at += size
    return True


cdef bint _skip_key(Cursor *c, Member *member) noexcept nogil:
    """A quoted key and its colon: lower-case ASCII that starts with a letter."""
    cdef const unsigned char *start
    if c.at >= c.end or c.at[0] != c'"':
        return False
    c.at += 1
    start = c.at
    while c.at < c.end and (c'a' <= c.at[0] <= c'z'
                            or c.at > start and (c'0' <= c.at[0] <= c'9' or c.at[0] == c'_')):
        c.at += 1
    member.key, member.size = start, <int>(c.at - start)
    return member.size > 0 and _skip_word(c, b'":', 2)


cdef bint _sorted(Member *before, Member *after) noexcept nogil:
    cdef int order = memcmp(before.key, after.key, min(before.size, after.size))
    return order < 0 or order == 0 and before.size < after.size


cdef bint _skip_value(Cursor *c, int depth, Span *span) noexcept nogil:
    """One value in canonical form; ``depth`` is that of a container found here. The recursion ends at the depth limit."""
    cdef bint good
    span.at = c.at
    if c.at >= c.end:
        return False
    if c.at[0] == c'"':
        span.kind = c'T'
        good = _skip_string(c)
    elif c.at[0] == c'-' or c'0' <= c.at[0] <= c'9':
        span.kind = c'I'
        good = _skip_integer(c)
    elif c.at[0] == c't':
        span.kind = c'B'
        good = _skip_word(c, b"true", 4)
    elif c.at[0] == c'f':
        span.kind = c'B'
        good = _skip_word(c, b"false", 5)
    elif c.at[0] == c'n':
        span.kind = c'n'
        good = _skip_word(c, b"null", 4)
    elif depth > C_MAX_DEPTH:
        return False
    elif c.at[0] == c'[':
        good = _skip_list(c, depth, span)
    elif c.at[0] == c'{':
        span.kind = c'O'
        good = _skip_object(c, depth)
    else:
        return False
    span.size = <int>(c.at - span.at)
    return good


cdef bint _skip_list(Cursor *c, int depth, Span *span) noexcept nogil:
    cdef Span item
    span.kind = c'L'
    c.at += 1
    if _skip_word(c, b"]", 1):
        return True
    while _skip_value(c, depth + 1, &item):
        if item.kind != c'T':
            span.kind = c'M'
        if _skip_word(c, b"]", 1):
            return True
        if not _skip_word(c, b",", 1):
            return False
    return False


cdef bint _skip_object(Cursor *c, int depth) noexcept nogil:
    cdef Member before, member
    before.size = 0
    before.key = NULL
    c.at += 1
    if _skip_word(c, b"}", 1):
        return True
    while _skip_key(c, &member):
        if before.key != NULL and not _sorted(&before, &member):
            return False
        if not _skip_value(c, depth + 1, &member.value):
            return False
        before = member
        if _skip_word(c, b"}", 1):
            return True
        if not _skip_word(c, b",", 1):
            return False
    return False


cdef bint _is_time(const unsigned char *text, int size) noexcept nogil:
    """The shape of ``at``, quotes included. What it says decides nothing."""
    cdef const char *shape = '"0000-00-00T00:00:00.000000Z"'
    cdef int i
    if size != 29:
        return False
    for i in range(29):
        if shape[i] == c'0':
            if not c'0' <= text[i] <= c'9':
                return False
        elif text[i] != <unsigned char>shape[i]:
            return False
    return True


cdef bint _fits(Span *value, KeyForm *form) noexcept nogil:
    if value.kind == c'n':
        return form.nullable
    if form.kind == c'U':
        return value.kind == c'I' and value.at[0] != c'-'
    if form.kind == c'H':
        return value.kind == c'T' and (value.size == 66 or value.size == 98) and all_hex(value.at + 1, value.size - 2)
    if form.kind == c'A':
        return value.kind == c'T' and _is_time(value.at, value.size)
    return value.kind == form.kind


cdef inline bint _same(const unsigned char *data, int size, const char *text, int length) noexcept nogil:
    return size == length and memcmp(data, text, size) == 0


cdef long long _number(Span *span) noexcept nogil:
    cdef long long value = 0
    cdef int i
    for i in range(span.size):
        value = 10 * value + (span.at[i] - c'0')
    return value


cdef class Scanner:
    """Verifies lines one after the other and stops before the first that is wrong.

    ``fault`` then names what is wrong (one of FAULTS), "" while all is well. ``head``, ``seq`` (of the next entry) and
    ``entries`` are as of the last good line, ``last_size`` is that line's length, ``closed`` whether it is the last
    event that may be. ``wall_steps`` counts entries whose wall clock is before their predecessor's: a warning.
    ``noted`` counts entries of ``noted_event``, which the caller must look at itself.
    """

    cdef Schema schema
    cdef Digester digester
    cdef char current[MAX_HEX]
    cdef char boot[128]
    cdef int boot_size
    cdef long long mono
    cdef char at[29]
    cdef bytes last_event, noted_event
    cdef const char *last_name  # into the bytes above
    cdef const char *noted_name
    cdef int last_name_size, noted_name_size
    cdef int state
    cdef readonly long long seq
    cdef readonly long long entries
    cdef readonly long long wall_steps
    cdef readonly long long noted
    cdef readonly int last_size
    cdef readonly bint closed

    def __cinit__(self, Schema schema not None, str journal, str algorithm="sha256", str head=None, long long seq=0,
                  str last_event="", str noted_event=""):
        self.schema = schema
        self.digester = Digester(algorithm, journal)
        self.digester.put_head(head, self.current)
        self.last_event = last_event.encode("ascii")
        self.last_name, self.last_name_size = PyBytes_AS_STRING(self.last_event), len(self.last_event)
        self.noted_event = noted_event.encode("ascii")
        self.noted_name, self.noted_name_size = PyBytes_AS_STRING(self.noted_event), len(self.noted_event)
        self.seq = seq
        memset(self.at, 0, 29)

    @property
    def head(self):
        return self.current[:self.digester.hex_size].decode("ascii")

    @property
    def fault(self):
        return FAULTS[self.state]

    def forgive(self):
        """Go on after a fault, from the last good line: the caller has found an entry that accounts for what is between."""
        self.state = NONE

    def feed(self, data):
        """Verify whole lines (what follows the last line feed is left); return the number of bytes that are good.

        ``data`` is anything with a contiguous buffer of bytes. After a fault nothing more is accepted.
        """
        cdef const unsigned char[::1] view = data
        cdef const unsigned char *start
        cdef const unsigned char *line
        cdef const unsigned char *end
        cdef const unsigned char *feed
        if view.shape[0] == 0 or self.state != NONE:
            return 0
        start = line = &view[0]
        end = start + view.shape[0]
        with nogil:
            while line < end:
                feed = <const unsigned char *>memchr(line, c'\n', end - line)
                if feed == NULL:
                    break
                self.state = self._line(line, feed + 1 - line)
                if self.state != NONE:
                    break
                self.last_size = <int>(feed + 1 - line)
                line = feed + 1
        return line - start

    cdef int _line(self, const unsigned char *line, Py_ssize_t size) noexcept nogil:
        """One line, its line feed included: NONE, and the state has moved on; or its fault, and nothing has."""
        cdef int hex_size = self.digester.hex_size, count = 0
        cdef const unsigned char *suffix
        cdef char digest[MAX_HEX]
        cdef Member members[MAX_KEYS]
        cdef Cursor c
        if size > C_MAX_LINE or size < PREFIX + 2 * hex_size + SUFFIX + 4:
            return FRAMING
        suffix = line + size - 3 - hex_size - SUFFIX
        if (memcmp(line, b'{"_p":"', PREFIX) != 0 or line[PREFIX + hex_size] != c'"'
                or memcmp(suffix, b',"~h":"', SUFFIX) != 0 or memcmp(line + size - 3, b'"}\n', 3) != 0):
            return FRAMING
        if memcmp(line + PREFIX, self.current, hex_size) != 0:
            return LINK
        if (not self.digester.digest(line, suffix - line, digest)
                or memcmp(suffix + SUFFIX, digest, hex_size) != 0):
            return HASH
        c.at = line + PREFIX + hex_size + 1
        c.end = suffix
        while c.at < c.end:
            if count == MAX_KEYS or not _skip_word(&c, b",", 1) or not _skip_key(&c, &members[count]):
                return CANONICAL
            if count and not _sorted(&members[count - 1], &members[count]):
                return CANONICAL
            if not _skip_value(&c, 2, &members[count].value):
                return CANONICAL
            count += 1
        return self._meaning(members, count, digest)

    cdef int _meaning(self, Member *members, int count, char *digest) noexcept nogil:
        """What the entry says: version, number, schema, clock; then the scanner's state moves on."""
        cdef Member *ev = _find(members, count, b"ev", 2)
        cdef Member *seq = _find(members, count, b"seq", 3)
        cdef Member *version = _find(members, count, b"v", 1)
        cdef EventForm *form = NULL
        cdef Span *boot
        cdef Span *at
        cdef long long mono
        cdef int i
        if version == NULL or version.value.kind != c'I' or version.value.at[0] == c'-':
            return SCHEMA
        if _number(&version.value) != 1:
            return VERSION
        if seq == NULL or seq.value.kind != c'I' or seq.value.at[0] == c'-' or _number(&seq.value) != self.seq:
            return SEQ
        if ev == NULL or ev.value.kind != c'T':
            return SCHEMA
        for i in range(self.schema.size):
            if _same(ev.value.at + 1, ev.value.size - 2, self.schema.forms[i].name, self.schema.forms[i].size):
                form = &self.schema.forms[i]
                break
        if form == NULL or form.keys != count:
            return SCHEMA
        for i in range(count):
            if (not _same(members[i].key, members[i].size, form.key[i].key, form.key[i].size)
                    or not _fits(&members[i].value, &form.key[i])):
                return SCHEMA
        if self.closed:
            return AFTER_CLOSE
        boot = &_find(members, count, b"boot", 4).value  # the schema has all three
        mono = _number(&_find(members, count, b"mono", 4).value)
        at = &_find(members, count, b"at", 2).value
        if boot.size > 128:
            return SCHEMA
        if boot.size == self.boot_size and memcmp(boot.at, self.boot, boot.size) == 0 and mono < self.mono:
            return CLOCK
        if self.entries and memcmp(at.at, self.at, 29) < 0:
            self.wall_steps += 1
        memcpy(self.boot, boot.at, boot.size)
        self.boot_size = boot.size
        self.mono = mono
        memcpy(self.at, at.at, 29)
        memcpy(self.current, digest, self.digester.hex_size)
        self.closed = _same(ev.value.at + 1, ev.value.size - 2, self.last_name, self.last_name_size)
        self.noted += _same(ev.value.at + 1, ev.value.size - 2, self.noted_name, self.noted_name_size)
        self.entries += 1
        self.seq += 1
        return NONE


cdef Member *_find(Member *members, int count, const char *key, int size) noexcept nogil:
    cdef int i
    for i in range(count):
        if _same(members[i].key, members[i].size, key, size):
            return &members[i]
    return NULL
