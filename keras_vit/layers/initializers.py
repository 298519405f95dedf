"""What a weight starts at, unless it is about to be loaded."""

import contextlib
import contextvars

_RANDOM = contextvars.ContextVar("random", default=True)


@contextlib.contextmanager
def zero_weights():
    """Layers built inside start at zero: no time for numbers nobody keeps.

    Filling ViT-B/16 with random numbers takes longer than reading its file.
    """
    token = _RANDOM.set(False)
    try:
        yield
    finally:
        _RANDOM.reset(token)


def initial(initializer):
    """Returns the initializer, or zeros inside `zero_weights`."""
    return initializer if _RANDOM.get() else "zeros"
