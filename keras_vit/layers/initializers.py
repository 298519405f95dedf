"""What a weight starts at, unless it is about to be loaded."""

import contextlib
import contextvars

import keras
import numpy as np
from keras import ops

LARGE = 2**22  # bytes, from which on NumPy asks for large pages
ALIGNMENT = 64  # bytes, as torch aligns
_PLACEHOLDER = contextvars.ContextVar("placeholder", default=None)


@contextlib.contextmanager
def unfilled_weights(wanted=True):
    """Layers built inside take no time for numbers that nobody keeps.

    Whoever builds them gives every weight its value afterwards: filling
    ViT-B/16 with random numbers takes longer than reading its file, and so,
    on torch, does filling it with zeros.

    Args:
        wanted: `False` builds them as ever.
    """
    token = _PLACEHOLDER.set(Unfilled() if wanted else None)
    try:
        yield
    finally:
        _PLACEHOLDER.reset(token)


def initial(initializer):
    """Returns the initializer, or a placeholder inside `unfilled_weights`."""
    placeholder = _PLACEHOLDER.get()
    if placeholder is not None:
        return placeholder
    if keras.config.backend() == "torch":
        return _in_place(keras.initializers.get(initializer))
    return initializer


def _in_place(initializer):
    """The same values, in memory that is taken before that of the way there.

    Keras' initializers on torch make three arrays and keep the last one. Freed
    in between the kept ones, the others leave holes into which no later weight
    fits: a ViT-B/16 of 330 MB took 430 to 650 MB.
    """

    def fill(shape, dtype=None):
        kept = ops.zeros(shape, dtype)
        kept.copy_(initializer(shape, dtype=dtype))
        return kept

    return fill


@keras.saving.register_keras_serializable("keras_vit")
class Unfilled(keras.initializers.Initializer):
    """Gives a weight its shape and any values at all."""

    def __init__(self):
        self._made = {}

    def __call__(self, shape, dtype=None):
        if keras.config.backend() == "torch":
            return _untouched(shape, dtype)
        if keras.distribution.distribution() is not None:
            return ops.zeros(shape, dtype)  # may be inside a trace
        # Elsewhere tensors never change: one for all weights of this shape.
        key = (tuple(shape), dtype)
        if key not in self._made:
            # From NumPy: JAX would compile zeros of every shape first.
            zeros = ops.convert_to_tensor(np.zeros(shape, "float32"))
            self._made[key] = ops.cast(zeros, dtype or "float32")
        return self._made[key]


def _untouched(shape, dtype):
    """Memory of torch that costs nothing before values come into it."""
    tensor = ops.empty(shape, dtype)
    count = tensor.numel() * tensor.element_size()
    if count < LARGE or tensor.device.type != "cpu":
        return tensor
    import torch

    # NumPy asks for pages of 2 MiB, torch does not: to fill ViT-B/16 for the
    # first time takes 0.2 s rather than 0.5.
    memory = np.empty(count + ALIGNMENT, "uint8")
    start = -memory.ctypes.data % ALIGNMENT
    memory = torch.from_numpy(memory[start : start + count])
    return memory.view(tensor.dtype).reshape(tuple(shape))
