"""Members of zip archives, whose directory may lie about them."""

import collections
import contextlib
import os
import zipfile
import zlib

from keras_vit.weights.tensor_file import guarded
from keras_vit.weights.tensor_file import problem
from keras_vit.weights.tensor_file import shown

# Deflate makes at most 1032 bytes of one (zlib, "technical details").
MAX_RATIO = 1032
LOCAL_HEADER = 30  # bytes before the name of a member, beside its data
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


@contextlib.contextmanager
def open_member(archive: zipfile.ZipFile, name: str):
    """Opens a member as a stream with `read` and `readinto`.

    As `archive.open`, but what is stored as it is comes straight from the
    file: zipfile copies it twice, which takes longer than its checksum.

    Raises:
        zipfile.BadZipFile: What the member says of itself is not what the
            directory says, or the last byte is read and the CRC is wrong.
    """
    with archive.open(name) as stream:  # compares both names
        info = archive.getinfo(name)
        if info.compress_type != zipfile.ZIP_STORED or not archive.filename:
            yield stream
            return
    with open(archive.filename, "rb", buffering=0) as file:
        file.seek(info.header_offset + LOCAL_HEADER - 4)
        lengths = file.read(4)
        for i in (0, 2):  # of the name and of the extra field
            skipped = int.from_bytes(lengths[i : i + 2], "little")
            file.seek(skipped, os.SEEK_CUR)
        yield _Stored(file, info)


class _Stored:
    """The bytes of a stored member, each counted into the CRC once."""

    def __init__(self, file, info):
        self._file, self._info = file, info
        self._left, self._crc = info.file_size, 0

    def readinto(self, target):
        target = memoryview(target)[: self._left]
        got = self._file.readinto(target)
        self._left -= got
        self._crc = zlib.crc32(target[:got], self._crc)
        if got and not self._left and self._crc != self._info.CRC:
            raise zipfile.BadZipFile(
                f"Bad CRC-32 for file {self._info.filename!r}"
            )
        return got

    def read(self, count=-1):
        count = self._left if count < 0 else min(count, self._left)
        data = bytearray(count)
        return bytes(memoryview(data)[: self.readinto(data)])
