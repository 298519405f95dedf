"""Files of weights that are cut short or hold other bytes than were written.

Whatever the damage: the right values, or a `CheckpointError` that names the
file. Only where a container keeps no checksum of its data (safetensors, HDF5,
PyTorch's legacy files) can a flipped byte pass, as another value.
"""

import pathlib
import tracemalloc

import numpy as np
import pytest
from test_weight_files import ARRAYS
from test_weight_files import WRITERS

from keras_vit.weights.open_file import open_tensors
from keras_vit.weights.tensor_file import CheckpointError

pytestmark = pytest.mark.once

TORCH = pathlib.Path(__file__).parent / "oracles" / "pth_container"
KINDS = [*WRITERS, "zip.pth", "legacy.pth"]
CHECKED = ["npz", "small_npz", "keras", "zip.pth"]
LIMIT = 2**24  # bytes that reading a damaged file of a few kB may take


@pytest.fixture(params=KINDS)
def whole(request, tmp_path):
    """A file of each kind: its bytes, and what is in it."""
    kind = request.param
    path = tmp_path / "weights"
    if kind in WRITERS:
        WRITERS[kind](path, ARRAYS)
    else:
        path.write_bytes((TORCH / kind).read_bytes())
    return kind, path.read_bytes(), read(path)


def read(path):
    """Name to shape, dtype and bytes."""
    with open_tensors(path) as tensors:
        values = {name: tensors[name].read() for name in tensors}
    return {
        name: (value.shape, str(value.dtype), value.tobytes())
        for name, value in values.items()
    }


def reread(path, data):
    """What a damaged file gives: its values, or `None` for an error.

    With the cache of earlier imports warm, so that memory is of the file.
    """
    path.write_bytes(data)
    tracemalloc.start()
    values, said = None, path.name
    try:
        values = read(path)
    except CheckpointError as error:
        said = str(error)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert path.name in said
    assert peak < LIMIT, f"{peak:,} bytes"
    return values


def test_cut_at_twenty_places(whole, tmp_path):
    """A16: never half a model."""
    kind, data, values = whole
    rng = np.random.default_rng(len(data))
    path = tmp_path / "damaged"
    for place in rng.integers(0, len(data), 20):
        got = reread(path, data[:place])
        # An HDF5 file may end in room that nothing was written to.
        assert got is None or (kind == "h5" and got == values), place


def test_flipped_at_forty_places(whole, tmp_path):
    """A16: never a crash; never another value where there is a checksum."""
    kind, data, values = whole
    rng = np.random.default_rng(len(data) + 1)
    path = tmp_path / "damaged"
    for place in rng.integers(0, len(data), 40):
        damaged = bytearray(data)
        damaged[place] ^= 1 << rng.integers(8)
        got = reread(path, bytes(damaged))
        if kind in CHECKED:
            # A name in a zip directory is under no checksum. Its tensor is
            # missing then, which the layouts see; values are never others.
            assert got is None or got.items() <= values.items(), place


@pytest.mark.parametrize("kind", KINDS)
def test_longer_by_rubbish(kind, tmp_path):
    """What follows the end is noticed or does no harm."""
    path = tmp_path / "weights"
    if kind in WRITERS:
        WRITERS[kind](path, ARRAYS)
    else:
        path.write_bytes((TORCH / kind).read_bytes())
    values = read(path)
    assert reread(path, path.read_bytes() + b"rubbish" * 9) in (None, values)
