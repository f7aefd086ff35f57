"""What Python cannot be: the static init, doors to system calls, and the hot paths of capture and chain."""
