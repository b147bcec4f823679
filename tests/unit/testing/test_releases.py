"""A download counts only when its published SHA-256 agrees; a site that is not there costs little time."""

import hashlib
import io
import socket
import tarfile
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from torchctl.testing import releases
from torchctl.testing.programs import PROGRAMS, architecture, version
from torchctl.testing.releases import CorruptDownload, Release, Unreachable, release_of

CONTENT = b"\x7fELF a program" * 1000


class Site:
    """A web server with the files it is given; a file of None breaks off half way."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut_short: set[str] = set()
        self.asked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                content = site.files.get(self.path)
                if content is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if self.path in site.cut_short else content)

            def log_message(self, format: str, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def publish(self, path: str, content: bytes, digest: str | None = None) -> Release:
        self.files[path] = content
        self.files[f"{path}.sha256"] = (digest or hashlib.sha256(content).hexdigest()).encode()
        return Release(f"{self.url}{path}", f"{self.url}{path}.sha256")


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    site = Site()
    thread = threading.Thread(target=site.server.serve_forever, args=(0.01,))
    thread.start()
    yield site
    site.server.shutdown()
    site.server.server_close()
    thread.join()


def silent(message: str) -> None: ...


def test_a_verified_program_is_kept_and_can_be_run(site: Site, tmp_path: Path) -> None:
    said: list[str] = []
    site.publish("/kubectl", CONTENT).fetch(tmp_path / "kubectl", said.append)
    assert (tmp_path / "kubectl").read_bytes() == CONTENT
    assert (tmp_path / "kubectl").stat().st_mode & 0o777 == 0o755
    assert said
    assert [file.name for file in tmp_path.iterdir()] == ["kubectl"]


def test_a_corrupted_file_is_refused_and_leaves_nothing(site: Site, tmp_path: Path) -> None:
    release = site.publish("/kubectl", CONTENT)
    site.files["/kubectl"] = CONTENT.replace(b"program", b"pr0gram", 1)
    with pytest.raises(CorruptDownload, match=r"/kubectl: SHA-256 is \w{64}, published is \w{64}: refused"):
        release.fetch(tmp_path / "kubectl", silent)
    assert list(tmp_path.iterdir()) == []


def test_a_corrupted_file_does_not_replace_a_good_one(site: Site, tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_bytes(b"good")
    with pytest.raises(CorruptDownload):
        site.publish("/kubectl", CONTENT, digest="0" * 64).fetch(tmp_path / "kubectl", silent)
    assert (tmp_path / "kubectl").read_bytes() == b"good"


def test_a_download_that_ends_too_early_is_unreachable(site: Site, tmp_path: Path) -> None:
    release = site.publish("/kubectl", CONTENT)
    site.cut_short.add("/kubectl")
    with pytest.raises(Unreachable):
        release.fetch(tmp_path / "kubectl", silent)
    assert list(tmp_path.iterdir()) == []


def test_archive_is_verified_and_one_file_of_it_kept(site: Site, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        entry = tarfile.TarInfo("etcd-v3/etcd")
        entry.size = len(CONTENT)
        tar.addfile(entry, io.BytesIO(CONTENT))
    site.files["/etcd.tar.gz"] = archive.getvalue()
    digest = hashlib.sha256(archive.getvalue()).hexdigest()
    site.files["/SHA256SUMS"] = f"{'1' * 64}  other.tar.gz\n{digest}  etcd.tar.gz\n".encode()
    release = Release(f"{site.url}/etcd.tar.gz", f"{site.url}/SHA256SUMS", member="etcd-v3/etcd")
    release.fetch(tmp_path / "etcd", silent)
    assert (tmp_path / "etcd").read_bytes() == CONTENT


def test_a_site_without_the_file_or_its_checksum_is_unreachable(site: Site) -> None:
    with pytest.raises(Unreachable, match="404"):
        Release(f"{site.url}/none", f"{site.url}/none.sha256").probe()
    site.files["/sums"] = b"<html>not a checksum</html>"
    with pytest.raises(Unreachable, match="no SHA-256 of kubectl is published"):
        Release(f"{site.url}/kubectl", f"{site.url}/sums").probe()


def test_site_that_never_answers_costs_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(releases, "_PROBE_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent_server:
        url = f"http://127.0.0.1:{silent_server.getsockname()[1]}/kubectl"
        started = time.monotonic()
        with pytest.raises(Unreachable):
            Release(url, f"{url}.sha256").probe()
        assert time.monotonic() - started < 20, "less than the 30 s that a download may be silent"


def test_addresses_are_those_of_the_release_sites() -> None:
    tag, arch = version(PROGRAMS["kubectl"]), architecture()
    release = release_of(PROGRAMS["kubectl"], "https://mirror.example/release/", "")
    assert release is not None
    assert release.url == f"https://mirror.example/release/{tag}/bin/linux/{arch}/kubectl"
    assert release.checksums == f"{release.url}.sha256"
    tag = version(PROGRAMS["etcd"])
    release = release_of(PROGRAMS["etcd"], "", "https://etcd.example")
    assert release is not None
    assert release.url == f"https://etcd.example/{tag}/etcd-{tag}-linux-{arch}.tar.gz"
    assert release.checksums == f"https://etcd.example/{tag}/SHA256SUMS"
    assert release.member == f"etcd-{tag}-linux-{arch}/etcd"


@pytest.mark.parametrize("name", ["kubectl", "etcd", "coredns"])
def test_an_empty_site_means_that_nothing_is_downloaded(name: str) -> None:
    assert release_of(PROGRAMS[name], "", "") is None
