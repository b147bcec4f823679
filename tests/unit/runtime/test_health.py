"""Checks are named, all are asked, and one that breaks hides no other."""

import pytest

from torchctl.runtime.health import HealthChecks


def well() -> str:
    return ""


def broken() -> str:
    raise RuntimeError("oops")


def test_a_process_without_checks_is_well() -> None:
    assert HealthChecks().live().ok
    assert HealthChecks().ready().ok


def test_one_complaint_fails_the_report_and_is_named() -> None:
    checks = HealthChecks()
    checks.add_live("watches", lambda: "pods heard nothing for 301 s")
    checks.add_live("loop", well)
    report = checks.live()
    assert not report.ok
    assert report.text("healthz") == (
        "[+]loop ok\n[-]watches failed: pods heard nothing for 301 s\nhealthz check failed\n"
    )


def test_a_check_that_raises_fails_and_hides_no_other() -> None:
    checks = HealthChecks()
    checks.add_ready("a", broken)
    checks.add_ready("b", well)
    text = checks.ready().text("readyz")
    assert "[-]a failed: the check raised RuntimeError('oops')\n[+]b ok\n" in text


def test_readiness_does_not_count_for_liveness() -> None:
    checks = HealthChecks()
    checks.add_ready("cache", lambda: "not synced")
    assert checks.live().ok
    assert not checks.ready().ok


def test_a_name_is_taken_once() -> None:
    checks = HealthChecks()
    checks.add_live("loop", well)
    with pytest.raises(ValueError, match="loop"):
        checks.add_live("loop", well)
