"""The random state that is in no Keras variable."""

import keras


def generator_states():
    """Returns name to array: torch draws dropout from generators of its own.

    JAX and TensorFlow draw from Keras' seed variables alone.
    """
    if keras.config.backend() != "torch":
        return {}
    import torch

    states = {"torch_cpu": torch.get_rng_state().numpy()}
    if torch.cuda.is_available():
        for i, state in enumerate(torch.cuda.get_rng_state_all()):
            states[f"torch_cuda_{i}"] = state.numpy()
    return states


def restore_generators(states):
    """Sets what `generator_states` returned; other devices stay as they are."""
    if keras.config.backend() != "torch" or "torch_cpu" not in states:
        return
    import torch

    torch.set_rng_state(torch.from_numpy(states["torch_cpu"]))
    for i in range(torch.cuda.device_count()):
        state = states.get(f"torch_cuda_{i}")
        if state is not None:
            torch.cuda.set_rng_state(torch.from_numpy(state), i)
