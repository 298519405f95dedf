"""What an address means: where a file is, and where it goes to."""

import hashlib
import os
import pathlib
import re
import typing
import urllib.parse

BUCKETS = "https://storage.googleapis.com"
ADDRESSES = (
    "gs://BUCKET/FILE, hf://USER/REPO[@REVISION][/FILE], timm/NAME or "
    "https://HOST/FILE"
)
LONGEST = 200  # bytes of a file name; most file systems end at 255
TRUE = ("1", "ON", "YES", "TRUE")
# Pages of the hub that people copy the address of.
HUB_PAGE = re.compile(
    r"https?://(?:www\.)?(?:huggingface\.co|hf\.co)/"
    r"([\w.-]+/[\w.-]+)(?:/(?:resolve|blob)/([^/?#]+)/([^?#]+))?/?"
    r"(?:\?download=true)?"
)
HUB = re.compile(r"([\w.-]+/[\w.-]+)(?:@([^/]+))?(?:/(.+))?")
# Folders of the hub that stand where a user's name does.
NO_USERS = ("datasets", "spaces", "buckets", "kernels")


class WebFile(typing.NamedTuple):
    """A file that one GET brings.

    Attributes:
        address: As errors and logs may show it: no password, no signature.
        url: What is asked for.
        target: Where it goes to in the cache.
    """

    address: str
    url: str
    target: pathlib.Path


class HubFiles(typing.NamedTuple):
    """A repository of the hub, or one file of it."""

    repo: str
    revision: str | None
    file: str | None

    @property
    def address(self) -> str:
        """As a user would write it."""
        revision = f"@{self.revision}" if self.revision else ""
        file = f"/{self.file}" if self.file else ""
        return f"hf://{self.repo}{revision}{file}"


def cache_home() -> pathlib.Path:
    """Returns `KERAS_VIT_HOME`, or `keras_vit` in the user's cache."""
    home = os.environ.get("KERAS_VIT_HOME")
    if home:
        return pathlib.Path(home).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(cache).expanduser() / "keras_vit"


def is_offline() -> bool:
    """Whether `KERAS_VIT_OFFLINE` or `HF_HUB_OFFLINE` forbids requests."""
    names = ("KERAS_VIT_OFFLINE", "HF_HUB_OFFLINE")
    return any(os.environ.get(name, "").upper() in TRUE for name in names)


def parse_address(address: str) -> WebFile | HubFiles:
    """Returns what an address means.

    Raises:
        ValueError: It is no address, or names no file.
    """
    page = HUB_PAGE.fullmatch(address)
    if page:
        file = page[3] and urllib.parse.unquote(page[3])
        return HubFiles(page[1], page[2], file)
    if address.startswith(("hf://", "timm/")):
        return _hub_files(address)
    if address.startswith("gs://"):
        return _bucket_file(address)
    if address.startswith(("http://", "https://")):
        return _web_file(address)
    raise ValueError(
        f"This is no address of a file. Expected: {ADDRESSES}. Received: "
        f"{address!r}. A file on this machine is for "
        f"keras_vit.load_checkpoint."
    )


def _hub_files(address):
    name = address.removeprefix("hf://")
    match = HUB.fullmatch(name)
    parts = name.split("/")
    if match is None or parts[0] in NO_USERS or ".." in parts:
        raise ValueError(
            f"This is no repository of a model on the hub. Expected: "
            f"hf://USER/REPO[@REVISION][/FILE] or timm/NAME. Received: "
            f"{address!r}. Copy the name from the top of the model's page."
        )
    return HubFiles(*match.groups())


def _bucket_file(address):
    base = os.environ.get("KERAS_VIT_BUCKETS") or BUCKETS
    if not base.startswith(("http://", "https://")):
        raise ValueError(
            f"KERAS_VIT_BUCKETS is where buckets are mirrored. Expected: an "
            f"https:// address. Received: {base!r}. Unset it to ask Google."
        )
    path = address.removeprefix("gs://")
    names = _names(address, path)
    # Not the mirror's host: its files are those of the bucket.
    target = cache_home().joinpath("gs", *names)
    return WebFile(
        address, f"{base.rstrip('/')}/{urllib.parse.quote(path)}", target
    )


def _web_file(address):
    parts = urllib.parse.urlsplit(address)
    if "@" in parts.netloc or not parts.hostname:
        raise ValueError(
            f"Cannot ask this host. Expected: {parts.scheme}://HOST/FILE, "
            f"without a user or a password. Received: host "
            f"{parts.hostname!r}. Download the file in the way that this "
            f"server wants, then use keras_vit.load_checkpoint."
        )
    shown = urllib.parse.urlunsplit((*parts[:3], "", ""))
    names = _names(shown, urllib.parse.unquote(parts.path))
    if parts.query:
        names.insert(-1, _digest(parts.query))
    # Percent signs stay: what is quoted already is not quoted twice.
    path = urllib.parse.quote(parts.path, safe="/%+@:=,~!$&'()*;")
    url = urllib.parse.urlunsplit((*parts[:2], path, parts.query, ""))
    host = re.sub(r"[^\w.-]", "_", parts.netloc.lower())
    return WebFile(shown, url, cache_home().joinpath(host, *names))


def _names(address, path):
    """Names of folders and of the file: a path cannot lead out of these."""
    if path.endswith("/") or not path.strip("/"):
        raise ValueError(
            f"This address names no file. Expected: {ADDRESSES}. Received: "
            f"{address!r}. Add the name of the file."
        )
    return [_name(part) for part in path.split("/") if part]


def _name(part):
    """One name for the cache; two parts never share one by being mended."""
    name = re.sub(r"[^\w.+=@-]", "_", part, flags=re.ASCII)[-LONGEST:]
    # Windows drops dots at the end, and "." and ".." are no names.
    name = name.rstrip(".")
    return name if name == part else f"{_digest(part)}_{name}"


def _digest(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:12]
