"""Checksums of what is fetched, and pages in the place of weights."""

import hashlib

import loopback
import pytest
from test_fetching import BODY
from test_fetching import FILE
from test_fetching import left_over

from keras_vit.fetching import FetchError
from keras_vit.fetching import fetch

pytestmark = pytest.mark.once

DIGEST = hashlib.sha256(BODY).hexdigest()


@pytest.mark.parametrize(
    ("name", "sha256", "headers"),
    [
        ("vit.npz", DIGEST, {}),
        ("vit.npz", DIGEST[:8].upper(), {}),
        (f"vit-{DIGEST[:8]}.pth", None, {}),
        ("vit.npz", None, {"ETag": hashlib.md5(BODY).hexdigest()}),
    ],
)
def test_checksums_without_a_bucket(server, name, sha256, headers):
    """From the caller, from torch.hub's name, from Amazon's ETag."""
    path = f"/v/{name}"
    headers = {"ETag": f'"{headers["ETag"]}"'} if headers else {}
    item = server.add(path, BODY, Server="AmazonS3", **headers)
    item.always = loopback.corrupt
    with pytest.raises(FetchError, match="twice"):
        fetch(server.url + path, sha256=sha256)
    item.always = None
    assert fetch(server.url + path, sha256=sha256).read_bytes() == BODY


@pytest.mark.parametrize(
    ("name", "headers"),
    [
        ("vit-20210101.pth", {}),
        ("vit.npz", {"ETag": f'"{"0" * 32}"'}),
        ("vit.npz", {"ETag": f'"{"0" * 32}-7"', "Server": "AmazonS3"}),
    ],
)
def test_what_only_looks_like_a_checksum(server, name, headers):
    server.add(f"/{name}", BODY, **headers)
    assert fetch(f"{server.url}/{name}").read_bytes() == BODY


def test_a_cached_file_against_the_callers_checksum(server):
    server.add(FILE, BODY)
    fetch(server.url + FILE)
    fetch(server.url + FILE, sha256=DIGEST)
    with pytest.raises(FetchError, match="00000000.*Received: SHA-256"):
        fetch(server.url + FILE, sha256="0" * 8)
    with pytest.raises(ValueError, match="'xyz'"):
        fetch(server.url + "/other", sha256="xyz")


@pytest.mark.parametrize(
    "page",
    [
        b"\n<!DOCTYPE html><html>log in</html>",
        b"<?xml version='1.0'?><Error>AccessDenied</Error>",
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
    ],
)
def test_a_page_in_place_of_weights(server, page, tmp_path):
    server.add(FILE, page, Content_Type="application/octet-stream")
    with pytest.raises(FetchError, match="web page|git LFS"):
        fetch(server.url + FILE)
    assert not left_over(tmp_path)
    assert len(server.log) == 1
