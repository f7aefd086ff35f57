"""The errors of ``agent``: the conversation's own, beside the supervisor's tree (``supervisor.errors``).

    LemniError
    ├── ModelError       the model server, or what it sent: exit 1, after bounded retries before the first byte only
    │   └── ScriptError  the scripted model ran out, or did not see what its script expects
    ├── SettingError
    │   └── SecretError  a model key that cannot be read; the message never quotes the key
    └── IdentityError    the real user has no name in the host's name service

What the *model* did wrong (malformed arguments, an unknown tool) is not here: it is a value that goes back to the model.
"""
from __future__ import annotations

from supervisor.errors import Fault, LemniError, SettingError


class ModelError(LemniError):
    """The exchange with the model failed. ``code`` is one of the stable ``model_…`` codes, ``remedy`` says what to check."""

    fault = Fault.MODEL
    code = "model_failed"


class ScriptError(ModelError):
    """The script of a scripted model has no further turn, or its ``expect`` did not match."""

    fault = Fault.USER
    code = "script_failed"


class SecretError(SettingError):
    """A key cannot be read from the place that the configuration names."""

    code = "secret_unreadable"


class IdentityError(LemniError):
    """The real uid has no entry in the host's name service: nobody to attribute the session to (DA-01)."""

    fault = Fault.ADMINISTRATOR
    code = "identity_unresolved"
