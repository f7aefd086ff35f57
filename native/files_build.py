"""cffi's recipe for ``native._files``: the declarations of files.c that Python sees."""
from __future__ import annotations

from pathlib import Path

from cffi import FFI

ffi = FFI()
ffi.cdef(
    """
    int files_open(int, const char *, uint64_t, uint64_t, uint64_t, int64_t, int64_t);
    int files_mkdir(int, const char *, unsigned, int64_t, int64_t);
    int files_unlink(int, const char *, int, int64_t, int64_t);
    int files_rename(int, const char *, int, const char *, unsigned, int64_t, int64_t);
    int files_whiteout(int, const char *, int64_t, int64_t);
    int files_clone(int, int);
    long files_names(int, char *, size_t);
    long files_unreadable(int, char *, size_t, int64_t, int64_t);
    """
)
ffi.set_source(
    "native._files",
    (Path(__file__).with_name("files.c")).read_text(encoding="utf-8"),
    extra_compile_args=["-O2", "-Wall", "-Wextra", "-fstack-protector-strong", "-D_FORTIFY_SOURCE=2"],
)

if __name__ == "__main__":
    ffi.compile(verbose=True)
