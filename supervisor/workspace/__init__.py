"""The working copy: opened over the developer's repository, compared at the end, applied when accepted."""
