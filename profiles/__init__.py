"""What a sandbox may do, as data, with its compilers to what the kernel takes."""
