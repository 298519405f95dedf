"""An array into a variable, with no more copies than the backend needs."""

import keras


def fill(variable, array):
    """Does `variable.assign(array)`, which is the tested reference, faster.

    Args:
        variable: A `keras.Variable`.
        array: A NumPy array of its shape.
    """
    variable.assign(_shared(array))


def _shared(array):
    """What the backend copies from once, rather than twice or in bad order."""
    backend = keras.config.backend()
    if backend == "torch" and array.flags.writeable:
        import torch

        return torch.from_numpy(array)  # Keras would copy it first
    if backend == "tensorflow" and array.ndim > 1 and array.flags.f_contiguous:
        # As `(out, in)` in a torch file: NumPy would walk across the rows.
        return keras.ops.transpose(array.T)
    return array
