"""What cffi generates from files_build.py: ``ffi`` and ``lib``, without types of their own."""
from typing import Any

ffi: Any
lib: Any
