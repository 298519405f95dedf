"""Fetching from a real server on this machine, whatever goes wrong (A20)."""

import errno
import hashlib
import logging
import os
import pathlib
import random
import shutil
import ssl
import urllib.error

import loopback
import pytest

from keras_vit.fetching import FetchError
from keras_vit.fetching import connection
from keras_vit.fetching import download
from keras_vit.fetching import fetch
from keras_vit.fetching import retrying
from keras_vit.fetching.address import parse_address
from keras_vit.fetching.part import Part

pytestmark = pytest.mark.once

BODY = random.Random(0).randbytes(300_000)
FILE = "/models/b16.npz"


def left_over(tmp_path):
    """Names of what is in the cache, but for the locks."""
    files = (p for p in (tmp_path / "cache").rglob("*") if p.is_file())
    return sorted(p.name for p in files if p.suffix != ".lock")


def test_a_bucket_file_comes_once(server, tmp_path, monkeypatch):
    """Second time without a request; third time offline and serverless."""
    path = "/vit_models/imagenet21k+imagenet2012/ViT B.npz"
    server.add_bucket(path, BODY)
    got = fetch(f"gs:/{path}")
    assert got.read_bytes() == BODY
    assert tmp_path / "cache" in got.parents
    assert len(left_over(tmp_path)) == 1
    monkeypatch.setenv("KERAS_VIT_BUCKETS", "http://127.0.0.1:1")
    assert fetch(f"gs:/{path}") == got
    monkeypatch.setenv("KERAS_VIT_OFFLINE", "1")
    assert fetch(f"gs:/{path}") == got
    assert len(server.log) == 1


def test_a_plain_address(server):
    server.add(FILE, BODY)
    got = fetch(f"{server.url}{FILE}?token=secret")
    assert got.read_bytes() == BODY
    assert "secret" not in str(got)
    assert got.name == "b16.npz"
    assert fetch(server.url + FILE) != got, "another query, another file"


PASSING = {
    "503": [loopback.status(503), loopback.status(503)],
    "429": [loopback.status(429, Retry_After="0")],
    "408": [loopback.status(408)],
    "no answer": [loopback.silent(0.4)],
    "cut off": [loopback.cut(1000), loopback.cut(2000), loopback.cut(3000)],
    "cut off after nothing": [loopback.cut(0)],
    "wrong bytes once": [loopback.corrupt],
    "slow": [loopback.drip(0.02)],
    "ignores the range": [loopback.cut(1000), loopback.deaf],
}


@pytest.mark.parametrize("faults", PASSING.values(), ids=PASSING)
def test_what_passes_is_waited_for(server, faults, monkeypatch, tmp_path):
    monkeypatch.setattr(connection, "TIMEOUT", 0.2)
    monkeypatch.setattr(connection, "WINDOW", 0.1)
    server.add_bucket(FILE, BODY, *faults)
    assert fetch(f"gs:/{FILE}").read_bytes() == BODY
    failures = [fault for fault in faults if fault is not loopback.deaf]
    assert len(server.gets(FILE)) == len(failures) + 1
    assert left_over(tmp_path) == ["b16.npz"]


FATAL = {
    "401": (loopback.status(401), "401", 1),
    "403": (loopback.status(403), "403", 1),
    "404": (loopback.status(404), "404", 1),
    "410": (loopback.status(410), "410", 1),
    "503": (loopback.status(503), "503", retrying.TRIES),
    "a long wait": (loopback.status(429, Retry_After="3600"), "3600 sec", 1),
    "cut off": (loopback.cut(9), "9 of 300,000 bytes", retrying.TRIES),
    "slow": (loopback.drip(0.01), r"\d+ bytes a second", retrying.TRIES),
    "wrong bytes": (loopback.corrupt, "MD5 [0-9a-f]{32}, twice", 2),
    "a loop": (loopback.status(302, Location=FILE), "302", None),
}


@pytest.mark.parametrize(("fault", "said", "tries"), FATAL.values(), ids=FATAL)
def test_what_does_not_pass_is_said(
    server, fault, said, tries, monkeypatch, tmp_path
):
    """A20: the address, what came and where to put the file by hand."""
    monkeypatch.setattr(connection, "WINDOW", 0.1)
    server.add_bucket(FILE, BODY).always = fault
    with pytest.raises(FetchError, match=said) as caught:
        fetch(f"gs:/{FILE}")
    assert f"gs:/{FILE}" in str(caught.value)
    if tries:
        assert len(server.gets(FILE)) == tries
    assert "b16.npz" not in left_over(tmp_path)


def test_a_dead_port_says_where_to_put_the_file(server, monkeypatch):
    monkeypatch.setenv("KERAS_VIT_BUCKETS", "http://127.0.0.1:1")
    with pytest.raises(FetchError, match="cache/gs/models/b16.npz"):
        fetch(f"gs:/{FILE}")


def test_a_cut_off_body_is_gone_on_with(server):
    """Three pieces, and no byte twice."""
    cuts = [loopback.cut(n) for n in (120_000, 250_000)]
    server.add_bucket(FILE, BODY, *cuts)
    assert fetch(f"gs:/{FILE}").read_bytes() == BODY
    ranges = [h.get("Range") for h in server.gets(FILE)]
    assert ranges == [None, "bytes=120000-", "bytes=250000-"]
    assert server.sent == len(BODY)


def test_progress_starts_the_count_of_tries_anew(server):
    cuts = [loopback.cut(n * retrying.ENOUGH + n) for n in (1, 2)]
    faults = [loopback.status(503)] * (retrying.TRIES - 2)
    server.add_bucket(FILE, BODY, *faults, cuts[0], *faults, cuts[1], *faults)
    assert fetch(f"gs:/{FILE}").read_bytes() == BODY


@pytest.mark.parametrize("fault", [None, loopback.careless])
def test_a_file_that_changes_meanwhile_is_fetched_anew(server, fault):
    """No mix of two versions, even if the server ignores If-Range."""
    item = server.add(FILE, bytes(len(BODY)), loopback.cut(1000))
    new = server.add("/new", BODY)

    def change(handler, _):
        item.body, item.headers = new.body, new.headers
        (fault or type(handler).serve)(handler, item)

    item.faults.append(change)
    assert fetch(server.url + FILE).read_bytes() == BODY
    assert server.gets(FILE)[1]["If-Range"] != new.headers["ETag"]


def test_without_a_validator_nothing_is_gone_on_with(server):
    item = server.add(FILE, BODY, loopback.cut(1000))
    item.headers["ETag"] = 'W/"weak"'
    assert fetch(server.url + FILE).read_bytes() == BODY
    assert not any("Range" in h for h in server.gets(FILE))


def test_a_part_that_is_whole_needs_no_request(server):
    """A process was killed between the last byte and the renaming."""
    source = parse_address(server.url + FILE)
    source.target.parent.mkdir(parents=True)
    part = Part(source.target)
    notes = {"url": source.url, "validator": '"a"', "size": len(BODY)}
    part.start({**notes, "checks": {"md5": hashlib.md5(BODY).hexdigest()}})
    part.path.write_bytes(BODY)
    assert fetch(server.url + FILE).read_bytes() == BODY
    assert not server.log


def test_a_part_longer_than_the_file_is_forgotten(server):
    source = parse_address(server.url + FILE)
    source.target.parent.mkdir(parents=True)
    item = server.add(FILE, BODY)
    part = Part(source.target)
    validator = item.headers["ETag"]
    part.start({"url": source.url, "validator": validator, "size": None})
    part.path.write_bytes(BODY * 2)
    assert fetch(server.url + FILE).read_bytes() == BODY


@pytest.mark.parametrize("notes", ["", "{", "[]", '{"url": 3}'])
def test_a_part_with_broken_notes_is_forgotten(server, notes):
    source = parse_address(server.url + FILE)
    source.target.parent.mkdir(parents=True)
    source.target.with_name("b16.npz.part").write_bytes(b"rubbish")
    source.target.with_name("b16.npz.part.json").write_text(notes)
    server.add(FILE, BODY)
    assert fetch(server.url + FILE).read_bytes() == BODY


def test_a_server_that_promises_too_much(server, tmp_path):
    """The wrong length: never taken for the whole."""
    server.add(FILE, BODY).headers["Content-Length"] = len(BODY) + 1
    server.items[FILE].always = loopback.cut(None)
    with pytest.raises(FetchError, match="of 300,001 bytes"):
        fetch(server.url + FILE)
    assert "b16.npz" not in left_over(tmp_path)


def test_redirects_are_followed(server):
    server.add_bucket("/real", BODY)
    server.add(FILE, b"").always = loopback.status(302, Location="/real")
    assert fetch(server.url + FILE).read_bytes() == BODY


def test_no_redirect_leaves_encryption():
    request = urllib.request.Request("https://a.example/x")
    handler = connection._SafeRedirects()
    with pytest.raises(FetchError, match=r"http://b\.example/x\. Do"):
        handler.redirect_request(
            request, None, 302, "", {}, "http://b.example/x?signature=1"
        )


def test_a_certificate_that_nobody_trusts(monkeypatch, server):
    """Said at once, and not tried again."""
    calls = []

    def refuse(*args, **kwargs):
        calls.append(args)
        reason = ssl.SSLCertVerificationError(1, "self-signed")
        reason.verify_message = "self-signed certificate"
        raise urllib.error.URLError(reason)

    monkeypatch.setattr(urllib.request.OpenerDirector, "open", refuse)
    with pytest.raises(FetchError, match="self-signed.*SSL_CERT_FILE"):
        fetch("https://a.example/x.npz")
    assert len(calls) == 1


def test_the_proxy_of_the_environment(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    server.add("http://files.example/x.npz", BODY)
    assert fetch("http://files.example/x.npz").read_bytes() == BODY


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux has it")
def test_a_full_disk_keeps_what_there_is(server, monkeypatch, tmp_path):
    server.add_bucket(FILE, BODY, loopback.cut(120_000))
    with monkeypatch.context() as patch:
        patch.setattr(retrying, "TRIES", 1)
        with pytest.raises(FetchError, match="120,000 of"):
            fetch(f"gs:/{FILE}")
        full = pathlib.Path("/dev/full")
        patch.setattr(Part, "open", lambda part: full.open("ab"))
        with pytest.raises(FetchError, match="disk is full.*KERAS_VIT_HOME"):
            fetch(f"gs:/{FILE}")
    assert left_over(tmp_path) == ["b16.npz.part", "b16.npz.part.json"]
    assert fetch(f"gs:/{FILE}").read_bytes() == BODY
    assert server.gets(FILE)[-1]["Range"] == "bytes=120000-"


def test_too_little_room_is_said_before_the_first_byte(server, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: usage)
    server.add_bucket(FILE, BODY)
    with pytest.raises(FetchError, match="300,000 free.*: 1,000 bytes"):
        fetch(f"gs:/{FILE}")


def test_a_cache_that_cannot_be_written(server, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("KERAS_VIT_HOME", str(tmp_path / "file"))
    with pytest.raises(FetchError, match="KERAS_VIT_HOME") as caught:
        fetch(f"gs:/{FILE}")
    assert caught.value.__cause__.errno in (errno.ENOTDIR, errno.EEXIST)


def test_offline_says_where_to_put_the_file(server, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    server.add_bucket(FILE, BODY)
    with pytest.raises(FetchError, match=r"cache/gs/models/b16\.npz"):
        fetch(f"gs:/{FILE}")
    assert not server.log


def test_one_line_at_the_start_and_one_at_the_end(server, caplog, capfd):
    server.add_bucket(FILE, BODY)
    with caplog.at_level(logging.INFO, "keras_vit"):
        fetch(f"gs:/{FILE}")
    assert [r.message.split()[0] for r in caplog.records] == [
        "Fetching",
        "Fetched",
    ]
    assert capfd.readouterr() == ("", "")
