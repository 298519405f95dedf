"""What a file is that is no file of weights, told by its first bytes."""

from keras_vit.weights.tensor_file import CheckpointError
from keras_vit.weights.tensor_file import problem

KNOWN = "an npz, safetensors, PyTorch or HDF5 file"

_AGAIN = "The download went wrong: look at the address and fetch it again."
_UNPACK = "Unpack it first."
_PICTURE = "Give pictures to load_images."
_PICKLE = (
    "Pickles may run any code. If you trust it, open it in a place that it "
    "cannot harm, and save its arrays with numpy.savez."
)
# First bytes, in lower case: what that is, and what to do.
_KINDS = {
    b"version https://git-lfs": (
        "a git-lfs pointer, which only says where the weights are",
        "Run `git lfs pull`, or fetch the file from the hub.",
    ),
    b"<!doctype html": ("a web page", _AGAIN),
    b"<html": ("a web page", _AGAIN),
    b"<?xml": ("an XML page, as storage servers send for errors", _AGAIN),
    b"\x1f\x8b": ("a gzip archive", _UNPACK),
    b"bzh": ("a bzip2 archive", _UNPACK),
    b"\xfd7zxz": ("an xz archive", _UNPACK),
    b"7z\xbc\xaf": ("a 7z archive", _UNPACK),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", _UNPACK),
    b"\x93numpy": (
        "one array of numpy.save",
        "Save all arrays under their names with numpy.savez.",
    ),
    b"gguf": ("a GGUF file", "Fetch the safetensors file of the same model."),
    b"\x89png": ("a picture", _PICTURE),
    b"\xff\xd8\xff": ("a picture", _PICTURE),
    b"\x80": ("a pickle that torch.save did not write", _PICKLE),
}


def stranger(path, head: bytes) -> CheckpointError:
    """Returns the error for a file of another kind, which it names."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    what, advice = f"bytes that start with {head[:16]!r}", _AGAIN
    if not head:
        what = "an empty file"
    for magic, kind in _KINDS.items():
        if start.startswith(magic):
            what, advice = kind
    return problem(path, "This is no file of weights.", KNOWN, what, advice)
