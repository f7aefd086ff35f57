"""What cffi compiles from launch.h (native/launch_build.py). Use native.launch."""
from typing import Any

ffi: Any
lib: Any
