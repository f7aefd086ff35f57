"""What an entry is made of, for the modules that write and verify it. See record.pyx."""

cdef extern from "<openssl/evp.h>" nogil:
    ctypedef struct EVP_MD
    ctypedef struct EVP_MD_CTX

cdef enum:
    D_SIZE = 64
    MAX_HEX = 96  # sha384
    MAX_KEYS = 48
    PREFIX = 7  # {"_p":"
    SUFFIX = 7  # ,"~h":"
    C_MAX_LINE = 65536
    C_MAX_DEPTH = 8

cdef enum:  # what a byte of a string is to its spelling
    PLAIN, QUOTE, BACKSLASH, CONTROL, MULTIBYTE

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

cdef class Digester:
    cdef EVP_MD *md
    cdef EVP_MD_CTX *ctx
    cdef unsigned char domain[D_SIZE]
    cdef int hex_size
    cdef bint digest(self, const unsigned char *data, size_t size, char *hexadecimal) noexcept nogil
    cdef int put_head(self, str head, char *hexadecimal) except -1

cdef class Schema:
    cdef EventForm *forms
    cdef int size
    cdef dict fields  # name -> tuple of (key, kind)
    cdef list alive  # the bytes that the C structures point into
    cdef const char *_keep(self, str text) except NULL


cdef inline long long max_integer() noexcept nogil:
    """2^53 - 1: what every JSON reader holds exactly."""
    return 9007199254740991


cdef inline int byte_kind(unsigned char byte) noexcept nogil:
    if byte >= 128:
        return MULTIBYTE
    if byte < 32:
        return CONTROL
    if byte == c'"':
        return QUOTE
    return BACKSLASH if byte == c'\\' else PLAIN


cdef inline char short_escape(unsigned char byte) noexcept nogil:
    """The letter of \\b \\t \\n \\f \\r, 0 for other control characters."""
    if byte == 8:
        return c'b'
    if byte == 9:
        return c't'
    if byte == 10:
        return c'n'
    if byte == 12:
        return c'f'
    return c'r' if byte == 13 else 0


cdef inline bint all_hex(const unsigned char *data, int size) noexcept nogil:
    cdef int i
    for i in range(size):
        if not (c'0' <= data[i] <= c'9' or c'a' <= data[i] <= c'f'):
            return False
    return True
