"""One disposable sandbox: what it is made of, how it is opened, what runs in it, how it ends."""
