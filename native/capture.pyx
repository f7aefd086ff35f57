# cython: boundscheck=False, wraparound=False, cdivision=True
"""Keeps the first bytes of a stream and counts the rest without holding it (CB-03, CB-04).

One ``Capture`` a stream. Up to the limit bytes are read straight into the ``bytes`` object that is handed out at the end,
which grows with what arrives: no second copy, and nothing is set aside for a command that says little. Beyond the limit
the kernel moves pages from the pipe to ``/dev/null`` by splice(2), so that a flood never enters this process. Everything
happens without the GIL, never blocks, and each pull is bounded, so that one flood cannot starve the event loop.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_SetFromErrno
from cpython.object cimport PyObject
from libc.errno cimport EAGAIN, EINTR, EINVAL, EIO, errno


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #include <unistd.h>
    """
    ctypedef long ssize_t
    int F_SETPIPE_SZ, F_GETFL, F_GETPIPE_SZ, F_SETFL, O_NONBLOCK, O_WRONLY, O_CLOEXEC
    unsigned int SPLICE_F_MOVE, SPLICE_F_NONBLOCK
    int fcntl(int fd, int command, ...) nogil
    int c_open "open"(const char *path, int flags, ...) nogil
    int c_close "close"(int fd) nogil
    ssize_t c_read "read"(int fd, void *buffer, size_t count) nogil
    ssize_t splice(int source, void *off_in, int sink, void *off_out, size_t count, unsigned int flags) nogil

cdef extern from "Python.h":
    int _PyBytes_Resize(PyObject **string, Py_ssize_t size) except -1
    void Py_XDECREF(PyObject *o)
    void Py_INCREF(object o)

cdef enum:
    FIRST = 4096  # most commands say less than a page
    SCRATCH = 65536
    GULP = 1 << 20  # the size of a widened pipe: one call empties it
    PULL = 8 << 20  # bytes a pull takes at most: about 2 ms, then other streams have their turn


def widen(int fd, int size=GULP):
    """Ask for a pipe of ``size`` bytes; return the size it has afterwards.

    F_SETPIPE_SZ of fcntl(2). A larger pipe is speed, not meaning: over the user's share (pipe-user-pages-soft) the
    kernel says EPERM or EBUSY, and the pipe stays as it was. Raises OSError where ``fd`` is no pipe.
    """
    cdef int got
    with nogil:
        got = fcntl(fd, F_SETPIPE_SZ, size)
        if got < 0:
            got = fcntl(fd, F_GETPIPE_SZ)
    if got < 0:
        PyErr_SetFromErrno(OSError)
    return got


cdef class Capture:
    """The first ``limit`` bytes of one stream, and the number of those beyond.

    ``kept`` and ``dropped`` count bytes; ``eof`` is set at end of file. A limit of 0 keeps nothing and counts everything.
    """

    cdef PyObject *store  # a bytes object that nobody else refers to, NULL before the first byte and after take()
    cdef Py_ssize_t room
    cdef int sink
    cdef bint busy
    cdef readonly Py_ssize_t limit
    cdef readonly Py_ssize_t kept
    cdef readonly long long dropped
    cdef readonly bint eof

    def __cinit__(self, Py_ssize_t limit):
        self.store = NULL
        self.sink = -1  # before anything can fail: __dealloc__ would close descriptor 0
        if limit < 0:
            raise ValueError("a capture's limit is a number of bytes, 0 or more")
        self.limit = limit

    def __dealloc__(self):
        Py_XDECREF(self.store)
        if self.sink >= 0:
            c_close(self.sink)

    def pull(self, int fd):
        """Take what is there, at most 8 MiB; return the number of bytes taken, kept or dropped.

        ``fd`` is made non-blocking. Returns short of 8 MiB at end of file (``eof``) or when nothing more is there now.
        Raises OSError for anything else; a terminal whose other side has gone (EIO) is at end of file.
        """
        cdef Py_ssize_t taken = 0, got
        if self.busy:
            raise RuntimeError("one pull at a time")  # the GIL is released below while the store is written to
        self.busy = True
        try:
            self._set_nonblocking(fd)
            while taken < PULL and not self.eof:
                if self.kept < self.limit:
                    self._make_room()
                    got = self._keep(fd)
                else:
                    self._open_sink()
                    got = self._drop(fd, PULL - taken)
                if got < 0:
                    if errno == EAGAIN:
                        break
                    if errno == EINTR:
                        continue
                    if errno != EIO:
                        PyErr_SetFromErrno(OSError)
                    self.eof = True
                elif got == 0:
                    self.eof = True
                else:
                    taken += got
        finally:
            self.busy = False
        return taken

    def since(self, Py_ssize_t offset):
        """A copy of the kept bytes from ``offset`` on, for whoever shows them as they come."""
        if offset < 0 or offset > self.kept:
            raise ValueError("offset beyond what is kept")
        if self.store == NULL or offset == self.kept:
            return b""
        return PyBytes_FromStringAndSize(PyBytes_AS_STRING(<object>self.store) + offset, self.kept - offset)

    def take(self):
        """The kept bytes, handed out once and without a copy. Afterwards the capture keeps nothing more."""
        if self.busy:
            raise RuntimeError("not during a pull")
        self.limit = self.kept
        if self.store == NULL:
            return b""
        _PyBytes_Resize(&self.store, self.kept)
        self.room = 0
        taken = <object>self.store
        Py_XDECREF(self.store)  # ``taken`` holds its own reference
        self.store = NULL
        return taken

    cdef int _set_nonblocking(self, int fd) except -1:
        cdef int flags = fcntl(fd, F_GETFL)
        if flags < 0:
            PyErr_SetFromErrno(OSError)
        if not flags & O_NONBLOCK and fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0:
            PyErr_SetFromErrno(OSError)
        return 0

    cdef int _make_room(self) except -1:
        """Room for at least one byte, doubling up to the limit: realloc(3) moves large blocks by remapping pages."""
        cdef Py_ssize_t room
        if self.kept < self.room:
            return 0
        room = min(self.limit, max(<Py_ssize_t>FIRST, 2 * self.room))
        if self.store == NULL:
            store = PyBytes_FromStringAndSize(NULL, room)
            Py_INCREF(store)
            self.store = <PyObject *>store
        else:
            _PyBytes_Resize(&self.store, room)  # the only reference is ours, as it demands
        self.room = room
        return 0

    cdef int _open_sink(self) except -1:
        if self.sink < 0:
            self.sink = c_open(b"/dev/null", O_WRONLY | O_CLOEXEC)
            if self.sink < 0:
                PyErr_SetFromErrno(OSError)
        return 0

    cdef Py_ssize_t _keep(self, int fd):
        """read(2) into the store. Writing into a bytes object is safe here: nobody has seen it yet."""
        cdef char *at = PyBytes_AS_STRING(<object>self.store) + self.kept
        cdef size_t room = self.room - self.kept
        cdef ssize_t got
        with nogil:
            got = c_read(fd, at, room)
        if got > 0:
            self.kept += got
        return got

    cdef Py_ssize_t _drop(self, int fd, size_t most):
        """splice(2) to /dev/null; where the stream cannot be spliced (a terminal), read into the stack and forget."""
        cdef char scratch[SCRATCH]
        cdef ssize_t got
        with nogil:
            got = splice(fd, NULL, self.sink, NULL, min(most, <size_t>GULP), SPLICE_F_MOVE | SPLICE_F_NONBLOCK)
            if got < 0 and errno == EINVAL:
                got = c_read(fd, scratch, SCRATCH)
        if got > 0:
            self.dropped += got
        return got
