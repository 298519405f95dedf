"""What a weight starts at, unless it is about to be loaded."""

import contextlib
import contextvars

import keras
import numpy as np

LARGE = 2**22  # bytes, from which on NumPy asks for large pages
ALIGNMENT = 64  # bytes, as torch aligns
_PLACEHOLDER = contextvars.ContextVar("placeholder", default=None)


@contextlib.contextmanager
def unfilled_weights():
    """Layers built inside take no time for numbers that nobody keeps.

    Whoever builds them gives every weight its value afterwards: filling
    ViT-B/16 with random numbers takes longer than reading its file, and so,
    on torch, does filling it with zeros.
    """
    token = _PLACEHOLDER.set(Unfilled())
    try:
        yield
    finally:
        _PLACEHOLDER.reset(token)


def initial(initializer):
    """Returns the initializer, or a placeholder inside `unfilled_weights`."""
    return _PLACEHOLDER.get() or initializer


@keras.saving.register_keras_serializable("keras_vit")
class Unfilled(keras.initializers.Initializer):
    """Gives a weight its shape and any values at all."""

    def __init__(self):
        self._made = {}

    def __call__(self, shape, dtype=None):
        if keras.config.backend() == "torch":
            return _untouched(shape, dtype)
        if keras.distribution.distribution() is not None:
            return keras.ops.zeros(shape, dtype)  # may be inside a trace
        # Elsewhere tensors never change: one for all weights of this shape.
        key = (tuple(shape), dtype)
        if key not in self._made:
            # From NumPy: JAX would compile zeros of every shape first.
            zeros = keras.ops.convert_to_tensor(np.zeros(shape, "float32"))
            self._made[key] = keras.ops.cast(zeros, dtype or "float32")
        return self._made[key]


def _untouched(shape, dtype):
    """Memory of torch that costs nothing before values come into it."""
    tensor = keras.ops.empty(shape, dtype)
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
