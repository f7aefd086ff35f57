# cython: boundscheck=False, wraparound=False, cdivision=True
"""Writes the journal's hash chain: canonical entries, each linked to the one before, into a batch in memory.

Everything that does not change from entry to entry of one kind is serialised once. What the schema could not verify is
not written: a value without canonical form is refused, and the chain goes on as if it had never been offered.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.tuple cimport PyTuple_GET_ITEM, PyTuple_GET_SIZE
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.string cimport memcpy

from native.record cimport (
    C_MAX_LINE,
    CONTROL,
    MAX_HEX,
    MAX_KEYS,
    MULTIBYTE,
    PLAIN,
    PREFIX,
    SUFFIX,
    Digester,
    Schema,
    all_hex,
    byte_kind,
    max_integer,
    short_escape,
)

from native.record import ENVELOPE, RECORD_VERSION

cdef extern from "Python.h":
    long long PyLong_AsLongLongAndOverflow(object number, int *overflow) except? -1

cdef const char *HEX = "0123456789abcdef"


class Refused(ValueError):
    """A value that has no canonical form, or an entry that the schema does not know. Nothing was written."""


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
        self.digester.put_head(head, self.current)
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
        if <long long>(self.used - start) > C_MAX_LINE:
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
        if overflow or value > max_integer() or value < -max_integer():
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
        cdef unsigned char c
        cdef char letter
        cdef int kind
        if type(text) is not str:
            raise Refused(f"a text is a str, not {type(text).__name__}")
        data = <const unsigned char *>PyUnicode_AsUTF8AndSize(text, &size)  # a lone surrogate is a UnicodeEncodeError
        self._room(6 * size + 2)
        self._put(b'"', 1)
        while i < size:
            kind = byte_kind(data[i])
            if kind == PLAIN or kind == MULTIBYTE:
                i += 1
                continue
            self._put(<const char *>data + start, i - start)
            c = data[i]
            self._put(b"\\", 1)
            letter = short_escape(c)
            if kind != CONTROL:
                self._put(<const char *>&c, 1)
            elif letter:
                self._put(&letter, 1)
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
    return (size == 64 or size == 96) and all_hex(<const unsigned char *>data, <int>size)
