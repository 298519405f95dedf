"""Members of zip archives, whose directory may lie about them."""

import collections
import os
import zipfile

from keras_vit.weights.tensor_file import guarded
from keras_vit.weights.tensor_file import problem
from keras_vit.weights.tensor_file import shown

# Deflate makes at most 1032 bytes of one (zlib, "technical details").
MAX_RATIO = 1032
FETCH = "The file is cut short or damaged: fetch it again."


def open_archive(stack, path) -> zipfile.ZipFile:
    """Opens an archive and checks its directory.

    Args:
        stack: `contextlib.ExitStack` that closes the archive.
        path: The file.

    Raises:
        CheckpointError: Not a whole archive, two members of one name, or one
            that cannot have the size that it claims.
    """
    with guarded(path, "the directory of this zip archive"):
        archive = stack.enter_context(zipfile.ZipFile(path))
    counts = collections.Counter(archive.namelist())
    twice = [name for name, count in counts.items() if count > 1]
    if twice:
        raise problem(
            path,
            "Two members of this archive have the same name.",
            "every name once",
            shown(map(repr, twice)),
            "Nothing says which one is meant: fetch the file again.",
        )
    room = os.path.getsize(path)
    for info in archive.infolist():
        _check_member(path, info, room)
    return archive


def _check_member(path, info, room):
    what = f"Cannot read the member {info.filename[:80]!r}."
    if info.flag_bits & 1 or info.compress_type not in (
        zipfile.ZIP_STORED,
        zipfile.ZIP_DEFLATED,
    ):
        kind = "encryption" if info.flag_bits & 1 else "compression"
        raise problem(
            path,
            what,
            "a stored or deflated member",
            f"{kind} of another kind ({info.compress_type})",
            "Write it again with numpy.savez or torch.save.",
        )
    stored = info.compress_type == zipfile.ZIP_STORED
    most = info.compress_size * (1 if stored else MAX_RATIO)
    begins = info.header_offset
    if begins + info.compress_size > room or info.file_size > most:
        raise problem(
            path,
            what,
            f"at most {max(0, min(most, (room - begins) * MAX_RATIO))} bytes",
            f"a directory that claims {info.file_size}",
            FETCH,
        )
