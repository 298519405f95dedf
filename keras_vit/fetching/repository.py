"""A repository of the hub, in the cache that the hub's library keeps."""

import hashlib
import logging
import os
import pathlib
import re

from keras_vit.fetching.address import HubFiles
from keras_vit.fetching.address import cache_home
from keras_vit.fetching.address import is_offline
from keras_vit.fetching.checksums import mismatch
from keras_vit.fetching.hub_problems import hub_cache
from keras_vit.fetching.hub_problems import hub_endpoint
from keras_vit.fetching.hub_problems import hub_problem
from keras_vit.fetching.problems import problem
from keras_vit.version import __version__

COMMIT = re.compile(r"[0-9a-f]{40}")
SHA256 = re.compile(r"[0-9a-f]{64}")

logger = logging.getLogger("keras_vit")


class Repository:
    """A repository at one commit, which the first file settles.

    Attributes:
        source: What was asked for.
        offline: Whether only the cache may be looked at.
        folder: Where its files are, once there is one.
    """

    def __init__(self, source: HubFiles):
        self.source = source
        self.offline = is_offline()
        self.folder = pathlib.Path()
        self._revision = source.revision

    def demand(self, name: str) -> pathlib.Path:
        """Returns the path of a file that has to be there."""
        path = self.find(name)
        if path is not None:
            return path
        missing = f"{self.source.address} has no file {name!r}"
        if not self.offline:
            raise problem(
                f"{missing}.",
                "a file of that repository",
                "404 Not Found",
                f"Look at the list of files at {hub_endpoint()}/"
                f"{self.source.repo}/tree/{self._revision or 'main'}.",
            )
        raise problem(
            f"{missing} in the cache, and offline mode is on.",
            f"it below {hub_cache()}",
            "none",
            "Fetch it once while online, or copy that folder from another "
            "machine; or unset KERAS_VIT_OFFLINE and HF_HUB_OFFLINE.",
        )

    def find(self, name: str) -> pathlib.Path | None:
        """Returns the path of a file, or `None` if there is no such file."""
        wrong = ("", "")
        for _ in range(2):
            path = self._cached_or_downloaded(name)
            if path is None:
                return None
            wrong = self._mismatch(path, name)
            if wrong is None:
                return path
            logger.warning("%s came with %s.", path, wrong[1])
            for damaged in (path.resolve(), _blob(path), path):
                damaged.unlink(missing_ok=True)
        raise problem(
            f"The file {name!r} of {self.source.address} is damaged.",
            wrong[0],
            f"{wrong[1]}, twice",
            "A proxy or a mirror (HF_ENDPOINT) may have changed it: try "
            "another network.",
        )

    def _cached_or_downloaded(self, name):
        import huggingface_hub
        from huggingface_hub import utils

        try:
            if self._known_to_lack(name):
                return None
            path = huggingface_hub.hf_hub_download(
                self.source.repo,
                name,
                revision=self._revision,
                library_name="keras_vit",
                library_version=__version__,
                local_files_only=self.offline,
            )
        except utils.EntryNotFoundError as error:
            lost = isinstance(error, utils.LocalEntryNotFoundError)
            if lost and not self.offline:
                raise hub_problem(self.source, error) from error
            return None
        # The hub's library lets out any of the errors of the HTTP client
        # beneath it, and that client has changed twice.
        except Exception as error:
            raise hub_problem(self.source, error) from error
        path = pathlib.Path(path)
        self.folder = path.parents[name.count("/")]
        self._revision = self.folder.name
        return path

    def _known_to_lack(self, name):
        """Whether the hub said so before: no need to ask for each loading."""
        import huggingface_hub

        if not COMMIT.fullmatch(self._revision or ""):
            return False
        found = huggingface_hub.try_to_load_from_cache(
            self.source.repo, name, revision=self._revision
        )
        return found is huggingface_hub._CACHED_NO_EXIST

    def _mismatch(self, path, name):
        """The hub's library compares lengths; this is about the bytes."""
        mark = _mark(path)
        state = f"{path.stat().st_size} {path.stat().st_mtime_ns}"
        if mark.is_file() and mark.read_text("utf-8") == state:
            return None
        etag = self._etag(path, name) or ""
        if not SHA256.fullmatch(etag):
            return None  # a small file in git itself
        wrong = mismatch(path, {"sha256": etag})
        if wrong is None:
            _write_mark(mark, state)
        return wrong

    def _etag(self, path, name):
        """The SHA-256 of a large file, as the hub stated it."""
        import huggingface_hub

        if path.is_symlink():
            return _blob(path).name
        if self.offline:
            return None
        url = huggingface_hub.hf_hub_url(
            self.source.repo, name, revision=self._revision
        )
        try:
            return huggingface_hub.get_hf_file_metadata(url).etag
        except Exception as error:  # see _cached_or_downloaded
            raise hub_problem(self.source, error) from error


def _blob(path):
    """What a file of a snapshot links to; itself where links are not."""
    return path.parent / os.readlink(path) if path.is_symlink() else path


def _mark(path):
    """Where it is noted that a file was compared with its checksum."""
    name = hashlib.sha256(str(path.resolve()).encode("utf-8")).hexdigest()
    return cache_home() / "verified" / name


def _write_mark(mark, state):
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(state, "utf-8")
    except OSError as error:  # compared again the next time, that is all
        logger.info("Cannot write %s: %s", mark, error)
