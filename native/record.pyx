# cython: boundscheck=False, wraparound=False, cdivision=True
"""What an entry of the journal is: its hash, its envelope, its schema. ``chain`` writes entries, ``scan`` verifies them.

An entry is one line, a canonical JSON object (the closed subset of RFC 8785 that ``Schema`` describes):

    {"_p":"<hash of the entry before>","agent":…,"at":…,…,"who":…,"~h":"<hash of this entry>"}

``_p`` sorts first and ``~h`` last, so both sit at fixed offsets. The hash is over D and the line's bytes before
``,"~h":"``; D is 64 bytes, one block of SHA-256: the domain, its version and the journal's id, padded with NUL. EVP
digests are fetched once: fetching costs as much as hashing an entry.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from libc.string cimport memcpy, memset

import re


cdef extern from "<openssl/evp.h>" nogil:
    EVP_MD *EVP_MD_fetch(void *context, const char *algorithm, const char *properties)
    void EVP_MD_free(EVP_MD *md)
    EVP_MD_CTX *EVP_MD_CTX_new()
    void EVP_MD_CTX_free(EVP_MD_CTX *ctx)
    int EVP_DigestInit_ex2(EVP_MD_CTX *ctx, const EVP_MD *md, void *params)
    int EVP_DigestUpdate(EVP_MD_CTX *ctx, const void *data, size_t size)
    int EVP_DigestFinal_ex(EVP_MD_CTX *ctx, unsigned char *digest, unsigned int *size)

ENVELOPE = {"agent": "T", "at": "A", "boot": "T", "ev": "T", "mono": "U", "seq": "U", "sess": "T?", "sub": "T?",
            "uid": "U", "v": "U", "who": "T"}
KINDS = frozenset("THUIBLA")
RECORD_VERSION = 1
MAX_LINE = C_MAX_LINE  # bytes, the line feed included
MAX_DEPTH = C_MAX_DEPTH
MAX_INTEGER = max_integer()

cdef const char *HEX = "0123456789abcdef"


cdef class Digester:
    """SHA-256 or SHA-384 of D and some bytes, by a digest that is fetched once."""

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

    cdef int put_head(self, str head, char *hexadecimal) except -1:
        """Copy a head's digits; None is what the first entry is linked to."""
        if head is None:
            head = "0" * self.hex_size
        if not re.fullmatch("[0-9a-f]{%d}" % self.hex_size, head):
            raise ValueError("not a head of this algorithm")
        digits = head.encode("ascii")
        memcpy(hexadecimal, PyBytes_AS_STRING(digits), self.hex_size)
        return 0


cdef class Schema:
    """The closed set of events. ``forms`` maps a name to its fields, each a key and a kind letter.

    T text, H digest (64 or 96 hexadecimal digits), U count, I integer, B flag, L list of texts, A time; ``?`` after it allows null.
    """

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
