"""Every layout, one tensor missing, added, bent or swapped: never a model.

The damage is done to the names and shapes of the reference files; damage to
the bytes of a container is in test_weight_files.py.
"""

import json

import keras
import numpy as np
import pytest
from test_checkpoints import FOLDERS
from test_checkpoints import cannot_say

import keras_vit
from keras_vit.weights.facts import folder_facts
from keras_vit.weights.open_file import open_tensors
from keras_vit.weights.scan import unscan

# A whole file of another architecture lacks just that, under the same names.
AMBIGUOUS = {
    "bigvision_flexivit": {"params/cls"},
    "bigvision_siglip_map": {"params/img/pos_embedding"},
    "bigvision_vit_bf16": {"pos_embedding"},
    "bigvision_vit_scan_map": {"params/pos_embedding"},
    "bigvision_vit_tok": {"cls", "pos_embedding"},
    "dinov2_original_reg4": {"register_tokens"},
    "hf_clip_full": {"visual_projection.weight"},
    "hf_clip_vision": {"visual_projection.weight"},
}


def arrays_of(name):
    """The file's tensors, and what has to be said beside them."""
    facts = json.loads((FOLDERS[name] / "config.json").read_text())
    path = FOLDERS[name] / facts["checkpoint"]
    with open_tensors(path) as tensors:
        read = unscan(tensors)
        arrays = {key: np.array(read[key].read()) for key in read}
    folder = path if path.is_dir() else path.parent
    return arrays, {**folder_facts(folder).fields, **cannot_say(name)}


def missing(arrays, key, _):
    del arrays[key]


def added(arrays, key, _):
    stem, dot, last = key.rpartition("/" if "/" in key else ".")
    arrays[f"{stem}{dot}x{last}"] = arrays[key]


def longer(arrays, key, _):
    array = arrays[key]
    arrays[key] = np.concatenate([array, array[-1:]]) if array.ndim else array


def flattened(arrays, key, _):
    """Axes of size one are no matter: those lose an element."""
    flat = arrays[key].reshape(-1)
    same = flat.size == max(arrays[key].shape, default=1)
    arrays[key] = flat[:-1] if same else flat


def swapped(arrays, key, other):
    arrays[key], arrays[other] = arrays[other], arrays[key]


def not_finite(arrays, key, _):
    arrays[key] = np.full_like(arrays[key], np.nan)


DAMAGE = [missing, added, longer, flattened, swapped, not_finite]


def pick(rng, arrays, used, damage):
    """A tensor, and another of another shape."""
    key = used[rng.integers(len(used))]
    if damage is swapped:
        others = [k for k in used if arrays[k].shape != arrays[key].shape]
        return key, others[rng.integers(len(others))]
    return key, None


def refused(path, said):
    """The error of a load, or `None`."""
    try:
        keras_vit.load_checkpoint(path, **said)
    except ValueError as error:
        return str(error)
    return None


# All of it is NumPy up to the last assignment: once is enough, on the backend
# that builds a model fastest.
FEW = FOLDERS if keras.config.backend() == "torch" else list(FOLDERS)[::8]


@pytest.mark.parametrize("name", FEW)
def test_damage_is_seen(name, tmp_path):
    """A16: a tensor of each layout at random, in six ways."""
    rng = np.random.default_rng(sum(name.encode()))
    arrays, said = arrays_of(name)
    path = tmp_path / "damaged.npz"
    np.savez(path, **arrays)
    used = keras_vit.load_checkpoint(path, **said).report.used
    for damage in DAMAGE:
        key, other = pick(rng, arrays, used, damage)
        if damage is missing and key in AMBIGUOUS.get(name, ()):
            continue
        changed = dict(arrays)
        damage(changed, key, other)
        np.savez(path, **changed)
        said_why = refused(path, said)
        assert said_why, f"{damage.__name__} {key} {other} was not seen"
        assert "Expected: " in said_why
        assert "Received: " in said_why
