"""Credentials are fetched before they end, at most once for all who need them, and survive a bad moment."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import pytest

from torchctl.runtime.client.credentials import (
    CredentialsError,
    Issued,
    PluginCredentials,
    StaticCredentials,
    TokenFile,
)
from torchctl.testing import virtualtime
from torchctl.testing.clock import ManualClock


async def test_static_credentials_offer_nothing_new_after_a_refusal() -> None:
    static = StaticCredentials("Bearer t")
    assert await static.authorization() == "Bearer t"
    assert await static.authorization(force=True) is None


async def test_token_file_is_reread_each_minute_and_after_a_refusal(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "token"
    path.write_text("one\n")
    tokens = TokenFile(str(path), clock)
    assert await tokens.authorization() == "Bearer one"
    path.write_text("two")
    assert await tokens.authorization() == "Bearer one"
    clock.seconds += 60
    assert await tokens.authorization() == "Bearer two"
    path.write_text("three")
    assert await tokens.authorization(force=True) == "Bearer three"


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("")])
async def test_a_token_file_that_vanished_leaves_the_old_token(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    path = tmp_path / "token"
    path.write_text("one")
    tokens = TokenFile(str(path), ManualClock())
    await tokens.authorization()
    damage(path)
    assert await tokens.authorization(force=True) == "Bearer one"


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_without_any_token_there_are_no_credentials(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)
    with pytest.raises(CredentialsError, match="token"):
        await TokenFile(str(path), ManualClock()).authorization()


def counting(*issued: Issued) -> tuple[list[Issued], Callable[[], Awaitable[Issued]]]:
    left = list(issued)

    async def fetch() -> Issued:
        await anyio.lowlevel.checkpoint()
        return left.pop(0)

    return left, fetch


async def test_a_plugin_s_token_is_renewed_shortly_before_it_ends() -> None:
    clock = ManualClock()
    _, fetch = counting(Issued("Bearer two", remaining_s=900))
    plugin = PluginCredentials(fetch, Issued("Bearer one", remaining_s=900), clock)
    clock.seconds += 839
    assert await plugin.authorization() == "Bearer one"
    clock.seconds += 1
    assert await plugin.authorization() == "Bearer two"


async def test_short_lived_token_is_used_before_it_is_replaced() -> None:
    """Otherwise a short lifetime would mean a busy loop of fetches."""
    clock = ManualClock()
    _, fetch = counting(Issued("Bearer two", remaining_s=30))
    plugin = PluginCredentials(fetch, Issued("Bearer one", remaining_s=30), clock)
    clock.seconds += 26
    assert await plugin.authorization() == "Bearer one"
    clock.seconds += 1
    assert await plugin.authorization() == "Bearer two"


async def test_token_without_expiry_is_renewed_only_after_a_refusal() -> None:
    clock = ManualClock()
    left, fetch = counting(Issued("Bearer two"))
    plugin = PluginCredentials(fetch, Issued("Bearer one"), clock)
    clock.seconds += 1e6
    assert await plugin.authorization() == "Bearer one"
    assert await plugin.authorization(force=True) == "Bearer two"
    assert left == []


async def test_many_refusals_at_once_fetch_once() -> None:
    clock = ManualClock()
    left, fetch = counting(Issued("Bearer two"), Issued("Bearer three"))
    plugin = PluginCredentials(fetch, Issued("Bearer one"), clock)
    clock.seconds += 10
    got: list[str | None] = []

    async def ask() -> None:
        got.append(await plugin.authorization(force=True))

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(ask)
    assert got == ["Bearer two"] * 20
    assert len(left) == 1


async def test_a_plugin_may_issue_certificates() -> None:
    plugin = PluginCredentials(counting()[1], Issued(None, ("c", "k")), ManualClock())
    assert plugin.certificate == ("c", "k")
    assert await plugin.authorization() is None


def test_slow_plugin_is_started_once_and_outlives_its_callers() -> None:
    """The deadline of a request is shorter than a plugin may take."""
    started: list[float] = []

    async def fetch() -> Issued:
        started.append(anyio.current_time())
        await anyio.sleep(8)
        return Issued("Bearer two")

    async def main() -> None:
        plugin = PluginCredentials(fetch, Issued("Bearer one", remaining_s=1), virtualtime.VirtualClock())
        await anyio.sleep(2)

        async def ask() -> None:
            with anyio.move_on_after(5):
                await plugin.authorization()
                pytest.fail("the plugin takes longer")

        async with anyio.create_task_group() as tasks:
            for _ in range(20):
                tasks.start_soon(ask)
        assert await plugin.authorization() == "Bearer two"
        assert started == [2.0]

    virtualtime.run(main)


async def test_failure_of_a_plugin_is_kept_for_a_moment() -> None:
    clock = ManualClock()
    asked: list[float] = []

    async def fetch() -> Issued:
        asked.append(clock.seconds)
        raise CredentialsError("the plugin failed")

    plugin = PluginCredentials(fetch, Issued("Bearer one", remaining_s=1), clock)
    clock.seconds += 10
    for _ in range(20):
        with pytest.raises(CredentialsError, match="the plugin failed"):
            await plugin.authorization()
        clock.seconds += 0.15
    assert len(asked) == 2
