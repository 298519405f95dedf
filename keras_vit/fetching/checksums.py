"""Checksums that servers, names and callers give, and files against them."""

import base64
import binascii
import hashlib
import pathlib
import re
import typing

# As torch.hub names its files: the start of the SHA-256 at the end.
NAMED = re.compile(r"-([0-9a-f]{8,64})\.(?:pth|pt|th)")
DATE = re.compile(r"(?:19|20)\d{6}")
MD5 = re.compile(r'"?([0-9a-f]{32})"?')

Checks = dict[str, str]


def given_checks(name: str, sha256: str | None) -> Checks:
    """Returns the checksum that the caller or the file's name gives.

    Raises:
        ValueError: `sha256` is not the start of one.
    """
    if sha256 is not None:
        if not re.fullmatch(r"[0-9a-fA-F]{8,64}", sha256):
            raise ValueError(
                f"`sha256` is a checksum. Expected: its 64 hexadecimal "
                f"digits, or the first 8 or more. Received: {sha256!r}."
            )
        return {"sha256": sha256.lower()}
    named = NAMED.search(name)
    if named is None or DATE.fullmatch(named[1]):
        return {}
    return {"sha256": named[1]}


def server_checks(headers: typing.Any) -> Checks:
    """Returns the checksum that the headers of an answer give.

    Google's buckets state the MD5 (but for objects put together from
    pieces). The ETag of Amazon's is the MD5, too, unless the object came in
    pieces, which a dash tells, or is encrypted under a customer's key.
    """
    for line in headers.get_all("x-goog-hash") or ():
        for item in line.split(","):
            kind, _, value = item.strip().partition("=")
            if kind == "md5":
                return _from_base64(value)
    etag = MD5.fullmatch(headers.get("ETag") or "")
    amazon = "AmazonS3" in (headers.get("Server") or "")
    coded = "kms" in (headers.get("x-amz-server-side-encryption") or "")
    return {"md5": etag[1]} if etag and amazon and not coded else {}


def _from_base64(value):
    try:
        return {"md5": base64.b64decode(value, validate=True).hex()}
    except binascii.Error:
        return {}


def mismatch(path: pathlib.Path, checks: Checks) -> tuple[str, str] | None:
    """Returns what was expected and received, if a file is not as it says.

    Args:
        path: The file.
        checks: Algorithm -> hexadecimal digits, or the first ones.
    """
    for algorithm, expected in checks.items():
        received = _digest(path, algorithm)
        if not received.startswith(expected):
            label = algorithm.upper().replace("SHA", "SHA-")
            return f"{label} {expected}", f"{label} {received}"
    return None


def _digest(path, algorithm):
    def start():
        # MD5 here finds damage, not forgery: some systems forbid it else.
        return hashlib.new(algorithm, usedforsecurity=algorithm != "md5")

    with open(path, "rb") as file:
        return hashlib.file_digest(file, start).hexdigest()
