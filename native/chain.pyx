# cython: boundscheck=False, wraparound=False, cdivision=True
"""Writes and verifies the journal's hash chain at the speed of the hash.

An entry is one line, a canonical JSON object (the closed subset of RFC 8785 that ``Schema`` describes):

    {"_p":"<hash of the entry before>","agent":…,"at":…,…,"who":…,"~h":"<hash of this entry>"}

``_p`` sorts first and ``~h`` last, so both sit at fixed offsets. The hash is over D and the line's bytes before
``,"~h":"``; D is 64 bytes, one block of SHA-256: the domain, its version and the journal's id, padded with NUL.

``Chain`` writes: everything that does not change from entry to entry of one kind is serialised once. ``Scanner``
verifies without building a single Python object per entry; it is strict, since any second way of writing the same
value would be a second journal with the same meaning. Writer and verifier share the schema: what could not be
verified is not written. EVP digests are fetched once: fetching costs as much as hashing an entry.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memchr, memcmp, memcpy, memset

import re


cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct EVP_MD
    ctypedef struct EVP_MD_CTX
    EVP_MD *EVP_MD_fetch(void *context, const char *algorithm, const char *properties)
    void EVP_MD_free(EVP_MD *md)
    EVP_MD_CTX *EVP_MD_CTX_new()
    void EVP_MD_CTX_free(EVP_MD_CTX *ctx)
    int EVP_DigestInit_ex2(EVP_MD_CTX *ctx, const EVP_MD *md, void *params)
    int EVP_DigestUpdate(EVP_MD_CTX *ctx, const void *data, size_t size)
    int EVP_DigestFinal_ex(EVP_MD_CTX *ctx, unsigned char *digest, unsigned int *size)

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef enum:
    D_SIZE = 64
    MAX_HEX = 96  # sha384
    MAX_KEYS = 48
    PREFIX = 7  # {"_p":"
    SUFFIX = 7  # ,"~h":"

# faults of a line, in the order in which they are looked for
cdef enum Fault:
    NONE, FRAMING, LINK, HASH, CANONICAL, VERSION, SEQ, SCHEMA, CLOCK, AFTER_CLOSE

FAULTS = ("", "framing", "link", "hash", "canonical", "version", "seq", "schema", "clock", "after_close")
ENVELOPE = {"agent": "T", "at": "A", "boot": "T", "ev": "T", "mono": "U", "seq": "U", "sess": "T?", "sub": "T?",
            "uid": "U", "v": "U", "who": "T"}
KINDS = frozenset("THUIBLA")
RECORD_VERSION = 1
MAX_LINE = 65536  # bytes, the line feed included
MAX_DEPTH = 8
MAX_INTEGER = 9007199254740991  # 2^53 - 1: what every JSON reader holds exactly

cdef int c_max_line = MAX_LINE
cdef long long c_max_integer = MAX_INTEGER
cdef enum:
    C_MAX_DEPTH = 8

cdef const char *HEX = "0123456789abcdef"
cdef unsigned char STRING_CLASS[256]  # 0 plain, 1 quote, 2 backslash, 3 control, 4 not ASCII
cdef unsigned char SHORT_ESCAPE[32]  # the letter of \b \t \n \f \r, else 0

cdef void _fill_tables() noexcept:
    cdef int i
    for i in range(256):
        STRING_CLASS[i] = 4 if i >= 128 else 3 if i < 32 else 0
    STRING_CLASS[c'"'] = 1
    STRING_CLASS[c'\\'] = 2
    memset(SHORT_ESCAPE, 0, 32)
    SHORT_ESCAPE[8], SHORT_ESCAPE[9], SHORT_ESCAPE[10], SHORT_ESCAPE[12], SHORT_ESCAPE[13] = b"btnfr"

_fill_tables()


class Refused(ValueError):
    """A value that has no canonical form, or an entry that the schema does not know. Nothing was written."""


cdef class Digester:
    """SHA-256 or SHA-384 of D and some bytes, by a digest that is fetched once."""

    cdef EVP_MD *md
    cdef EVP_MD_CTX *ctx
    cdef unsigned char domain[D_SIZE]
    cdef int hex_size

    def __cinit__(self, str algorithm, str journal):
        sizes = {"sha256": 64, "sha384": 96}
        if algorithm not in sizes:
            raise ValueError(f"unsupported hash algorithm {algorithm!r}")
        self.hex_size = sizes[algorithm]
        self.md = EVP_MD_fetch(NULL, {"sha256": b"SHA2-256", "sha384": b"SHA2-384"}[algorithm], NULL)
        self.ctx = EVP_MD_CTX_new()
        if self.md == NULL or self.ctx == NULL:
            raise MemoryError(f"libcrypto offers no {algorithm}")
        domain = b"lemniscate.journal/1\0" + journal.encode("ascii")
        if len(domain) > D_SIZE:
            raise ValueError("a journal's id has at most 43 bytes")
        memset(self.domain, 0, D_SIZE)
        memcpy(self.domain, PyBytes_AS_STRING(domain), len(domain))

    def __dealloc__(self):
        EVP_MD_CTX_free(self.ctx)
        EVP_MD_free(self.md)

    cdef bint digest(self, const unsigned char *data, size_t size, char *hexadecimal) noexcept nogil:
        """Write ``hex_size`` digits; False where libcrypto fails, which it does for want of memory only."""
        cdef unsigned char raw[64]
        cdef unsigned int got = 0
        cdef int i
        if (EVP_DigestInit_ex2(self.ctx, self.md, NULL) != 1
                or EVP_DigestUpdate(self.ctx, self.domain, D_SIZE) != 1
                or EVP_DigestUpdate(self.ctx, data, size) != 1
                or EVP_DigestFinal_ex(self.ctx, raw, &got) != 1):
            return False
        for i in range(self.hex_size // 2):
            hexadecimal[2 * i] = HEX[raw[i] >> 4]
            hexadecimal[2 * i + 1] = HEX[raw[i] & 15]
        return True


# --- the schema --------------------------------------------------------------------------------------------------------

cdef struct KeyForm:
    const char *key
    int size
    char kind
    bint nullable

cdef struct EventForm:
    const char *name
    int size
    int keys  # number of them
    KeyForm key[MAX_KEYS]


cdef class Schema:
    """The closed set of events. ``forms`` maps a name to its fields, each a key and a kind letter.

    T text, H digest (64 or 96 hexadecimal digits), U count, I integer, B flag, L list of texts, A time; ``?`` after it allows null.
    """

    cdef EventForm *forms
    cdef int size
    cdef dict fields  # name -> tuple of (key, kind)
    cdef list alive  # the bytes that the C structures point into

    def __cinit__(self, forms):
        cdef EventForm *form
        cdef int i, j
        self.fields = {}
        self.alive = []
        self.size = len(forms)
        self.forms = <EventForm *>PyMem_Malloc(max(1, self.size) * sizeof(EventForm))
        if self.forms == NULL:
            raise MemoryError
        for i, (name, fields) in enumerate(forms.items()):
            merged = {**ENVELOPE, **dict(fields)}
            if not re.fullmatch("[a-z][a-z_.]*", name):
                raise ValueError(f"not the name of an event: {name}")
            if len(merged) != len(ENVELOPE) + len(fields) or len(merged) > MAX_KEYS:
                raise ValueError(f"{name}: a field twice, one of the envelope's, or too many")
            form = &self.forms[i]
            form.name, form.size, form.keys = self._keep(name), len(name), len(merged)
            for j, key in enumerate(sorted(merged)):
                kind = merged[key]
                if not re.fullmatch("[a-z][a-z0-9_]*", key) or kind[0] not in KINDS or kind[1:] not in ("", "?"):
                    raise ValueError(f"{name}.{key}: not a key, or of no known kind ({kind})")
                form.key[j].key, form.key[j].size = self._keep(key), len(key)
                form.key[j].kind, form.key[j].nullable = ord(kind[0]), kind.endswith("?")
            self.fields[name] = tuple(fields)

    def __dealloc__(self):
        PyMem_Free(self.forms)

    cdef const char *_keep(self, str text) except NULL:
        encoded = text.encode("ascii")
        self.alive.append(encoded)
        return PyBytes_AS_STRING(encoded)


# --- writing -----------------------------------------------------------------------------------------------------------

cdef enum Slot:  # where a value comes from; 0 and up: the event's values
    AT = -1
    MONO = -2
    SEQ_SLOT = -3
    AGENT = -4
    SUB = -5


cdef class Plan:
    """One kind of event, serialised as far as it can be: literal bytes, each followed by one value."""

    cdef int size
    cdef int fields
    cdef int slot[MAX_KEYS]
    cdef char kind[MAX_KEYS]
    cdef bint nullable[MAX_KEYS]
    cdef list literals
    cdef bytes tail


cdef class Chain:
    """Serialises entries and chains them into a batch in memory. One thread; writes nothing anywhere.

    ``constants`` gives boot, sess, uid and who of every entry. ``head`` and ``seq`` are those to go on from.
    """

    cdef Schema schema
    cdef Digester digester
    cdef dict constants
    cdef dict plans
    cdef unsigned char *buffer
    cdef size_t used, room
    cdef char current[MAX_HEX]
    cdef readonly long long seq  # of the next entry

    def __cinit__(self, Schema schema not None, str journal, dict constants, str algorithm="sha256", str head=None,
                  long long seq=0):
        self.schema = schema
        self.digester = Digester(algorithm, journal)
        self.plans = {}
        self.constants = {"v": b"%d" % RECORD_VERSION}
        for key in ("boot", "sess", "uid", "who"):
            self._put_kind(constants[key], ord(ENVELOPE[key][0]), ENVELOPE[key].endswith("?"))
            self.constants[key] = self.take()
        if head is None:
            head = "0" * self.digester.hex_size
        if not re.fullmatch("[0-9a-f]{%d}" % self.digester.hex_size, head) or seq < 0:
            raise ValueError("not a head of this algorithm")
        raw = head.encode("ascii")
        memcpy(self.current, PyBytes_AS_STRING(raw), self.digester.hex_size)
        self.seq = seq

    def __dealloc__(self):
        PyMem_Free(self.buffer)

    @property
    def head(self):
        """The hash of the last entry, or what the first one is linked to."""
        return self.current[:self.digester.hex_size].decode("ascii")

    @property
    def pending(self):
        """Bytes of the batch."""
        return self.used

    def take(self):
        """The batch: whole lines, in order. The next one starts empty."""
        batch = PyBytes_FromStringAndSize(<char *>self.buffer, self.used)
        self.used = 0
        return batch

    def append(self, str event not None, tuple values not None, long long at, long long mono, str agent not None="main",
               str sub=None):
        """Add one entry: the event's values in the order of its fields, µs since 1970 (UTC), µs of the boot clock.

        Returns its ``seq``. Raises Refused, and the chain stays as it was.
        """
        cdef size_t start = self.used
        try:
            self._write(self._plan(event), values, at, mono, agent, sub)
        except ValueError as error:
            self.used = start
            raise error if isinstance(error, Refused) else Refused(str(error)) from None
        except BaseException:
            self.used = start
            raise
        self.seq += 1
        return self.seq - 1

    cdef int _write(self, Plan plan, tuple values, long long at, long long mono, str agent, str sub) except -1:
        cdef size_t start = self.used
        cdef int hex_size = self.digester.hex_size, i, slot
        cdef bytes literal
        cdef char digest[MAX_HEX]
        if PyTuple_GET_SIZE(values) != plan.fields:
            raise Refused("not as many values as the event has fields")
        self._put(b'{"_p":"', PREFIX)
        self._put(self.current, hex_size)
        self._put(b'"', 1)
        for i in range(plan.size):
            literal = <bytes>plan.literals[i]
            self._put(PyBytes_AS_STRING(literal), PyBytes_GET_SIZE(literal))
            slot = plan.slot[i]
            if slot >= 0:
                self._put_kind(<object>PyTuple_GET_ITEM(values, slot), plan.kind[i], plan.nullable[i])
            elif slot == AT:
                self._put_time(at)
            elif slot == MONO:
                self._put_integer(mono, False)
            elif slot == SEQ_SLOT:
                self._put_integer(self.seq, False)
            elif slot == AGENT:
                self._put_text(agent)
            else:
                self._put_kind(sub, c'T', True)
        self._put(PyBytes_AS_STRING(plan.tail), PyBytes_GET_SIZE(plan.tail))
        if not self.digester.digest(self.buffer + start, self.used - start, digest):
            raise MemoryError
        self._put(b',"~h":"', SUFFIX)
        self._put(digest, hex_size)
        self._put(b'"}\n', 3)
        if <long long>(self.used - start) > c_max_line:
            raise Refused("an entry over 64 KiB")
        memcpy(self.current, digest, hex_size)
        return 0

    cdef Plan _plan(self, str event):
        cdef Plan plan
        plan = self.plans.get(event)
        if plan is not None:
            return plan
        if event not in self.schema.fields:
            raise Refused(f"no such event: {event}")
        fields = dict(self.schema.fields[event])
        order = list(fields)
        from_envelope = {"at": AT, "mono": MONO, "seq": SEQ_SLOT, "agent": AGENT, "sub": SUB}
        plan = Plan()
        plan.fields = len(order)
        plan.literals = []
        literal = b""
        for key in sorted({**ENVELOPE, **fields}):
            literal += b',"%s":' % key.encode("ascii")
            if key == "ev":
                literal += b'"%s"' % event.encode("ascii")
            elif key in self.constants:
                literal += self.constants[key]
            else:
                kind = fields.get(key, "T")
                plan.slot[plan.size] = from_envelope[key] if key in from_envelope else order.index(key)
                plan.kind[plan.size] = ord(kind[0])
                plan.nullable[plan.size] = kind.endswith("?")
                plan.size += 1
                plan.literals.append(literal)
                literal = b""
        plan.tail = literal
        self.plans[event] = plan
        return plan

    cdef int _room(self, size_t size) except -1:
        cdef size_t room = self.room
        if self.used + size <= room:
            return 0
        while room < self.used + size:
            room = max(<size_t>8192, 2 * room)
        grown = <unsigned char *>PyMem_Realloc(self.buffer, room)
        if grown == NULL:
            raise MemoryError
        self.buffer = grown
        self.room = room
        return 0

    cdef inline int _put(self, const char *data, size_t size) except -1:
        self._room(size)
        memcpy(self.buffer + self.used, data, size)
        self.used += size
        return 0

    cdef int _put_kind(self, object value, char kind, bint nullable) except -1:
        cdef Py_ssize_t i
        if value is None:
            if not nullable:
                raise Refused("null where the event has a value")
            return self._put(b"null", 4)
        if kind == c'B':
            if value is True:
                return self._put(b"true", 4)
            if value is False:
                return self._put(b"false", 5)
            raise Refused("a flag is True or False")
        if kind == c'U' or kind == c'I':
            if type(value) is not int:
                raise Refused(f"a number is an int, not {type(value).__name__}")
            return self._put_integer(value, kind == c'I')
        if kind == c'L':
            if type(value) is not tuple:
                raise Refused("a list is a tuple of texts")
            self._put(b"[", 1)
            for i in range(PyTuple_GET_SIZE(value)):
                if i:
                    self._put(b",", 1)
                self._put_text(<object>PyTuple_GET_ITEM(value, i))
            return self._put(b"]", 1)
        if kind == c'H' and not (type(value) is str and _is_digest(value)):
            raise Refused("a digest has 64 or 96 lower-case hexadecimal digits")
        return self._put_text(value)

    cdef int _put_integer(self, object number, bint negative) except -1:
        cdef int overflow = 0, size = 0
        cdef long long value = PyLong_AsLongLongAndOverflow(number, &overflow)
        cdef char digits[24]
        cdef bint minus = value < 0
        if overflow or value > c_max_integer or value < -c_max_integer:
            raise Refused("an integer beyond 2^53 - 1")
        if minus and not negative:
            raise Refused("a count below 0")
        if minus:
            value = -value
        while True:
            size += 1
            digits[24 - size] = c'0' + value % 10
            value //= 10
            if value == 0:
                break
        if minus:
            size += 1
            digits[24 - size] = c'-'
        return self._put(digits + 24 - size, size)

    cdef int _put_time(self, long long at) except -1:
        """RFC 3339, UTC, microseconds: "2026-01-31T12:00:00.000000Z". Civil date from days by Howard Hinnant's method."""
        cdef long long seconds = at // 1_000_000, micro = at % 1_000_000, days, era, doe, yoe, doy, mp, y, m, d, s
        cdef char text[30]
        if at < 0 or at >= 253_402_300_800_000_000:
            raise Refused("a time outside 1970 to 9999")
        days = seconds // 86400 + 719468
        s = seconds % 86400
        era = days // 146097
        doe = days % 146097
        yoe = (doe - doe // 1460 + doe // 36524 - doe // 146096) // 365
        doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
        mp = (5 * doy + 2) // 153
        d = doy - (153 * mp + 2) // 5 + 1
        m = mp + 3 if mp < 10 else mp - 9
        y = yoe + era * 400 + (1 if m <= 2 else 0)
        memcpy(text, b'"0000-00-00T00:00:00.000000Z"', 29)
        _digits(text + 1, y, 4)
        _digits(text + 6, m, 2)
        _digits(text + 9, d, 2)
        _digits(text + 12, s // 3600, 2)
        _digits(text + 15, s // 60 % 60, 2)
        _digits(text + 18, s % 60, 2)
        _digits(text + 21, micro, 6)
        return self._put(text, 29)

    cdef int _put_text(self, object text) except -1:
        cdef Py_ssize_t size, i = 0, start = 0
        cdef const unsigned char *data
        cdef unsigned char c, kind
        if type(text) is not str:
            raise Refused(f"a text is a str, not {type(text).__name__}")
        data = <const unsigned char *>PyUnicode_AsUTF8AndSize(text, &size)  # a lone surrogate is a UnicodeEncodeError
        self._room(6 * size + 2)
        self._put(b'"', 1)
        while i < size:
            kind = STRING_CLASS[data[i]]
            if kind == 0 or kind == 4:
                i += 1
                continue
            self._put(<const char *>data + start, i - start)
            c = data[i]
            self._put(b"\\", 1)
            if kind != 3:
                self._put(<const char *>&c, 1)
            elif SHORT_ESCAPE[c]:
                self._put(<const char *>&SHORT_ESCAPE[c], 1)
            else:
                self._put(b"u00", 3)
                self._put(&HEX[c >> 4], 1)
                self._put(&HEX[c & 15], 1)
            i += 1
            start = i
        self._put(<const char *>data + start, size - start)
        return self._put(b'"', 1)


cdef inline void _digits(char *at, long long number, int width) noexcept nogil:
    while width:
        width -= 1
        at[width] = c'0' + number % 10
        number //= 10


cdef bint _is_digest(str text) except -1:
    cdef Py_ssize_t size
    cdef const char *data = PyUnicode_AsUTF8AndSize(text, &size)
    return (size == 64 or size == 96) and _all_hex(<const unsigned char *>data, <int>size)


# --- verifying ---------------------------------------------------------------------------------------------------------

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


cdef inline bint _all_hex(const unsigned char *data, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        if not (c'0' <= data[i] <= c'9' or c'a' <= data[i] <= c'f'):
            return False
    return True


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
    cdef unsigned char kind, e
    if c.at >= c.end or c.at[0] != c'"':
        return False
    c.at += 1
    while c.at < c.end:
        kind = STRING_CLASS[c.at[0]]
        if kind == 0:
            c.at += 1
        elif kind == 1:
            c.at += 1
            return True
        elif kind == 4:
            if not _skip_utf8(c):
                return False
        elif kind == 3 or c.end - c.at < 2:
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
    if not (high == c'0' or high == c'1') or not _all_hex(&low, 1):
        return False
    value = (high - c'0') * 16 + (low - c'0' if low <= c'9' else low - c'a' + 10)
    return not SHORT_ESCAPE[value]


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
    return size > 0 and value <= c_max_integer and not (minus and value == 0)


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
        return value.kind == c'T' and (value.size == 66 or value.size == 98) and _all_hex(value.at + 1, value.size - 2)
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
        if head is None:
            head = "0" * self.digester.hex_size
        if not re.fullmatch("[0-9a-f]{%d}" % self.digester.hex_size, head):
            raise ValueError("not a head of this algorithm")
        raw = head.encode("ascii")
        memcpy(self.current, PyBytes_AS_STRING(raw), self.digester.hex_size)
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
        if size > c_max_line or size < PREFIX + 2 * hex_size + SUFFIX + 4:
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
