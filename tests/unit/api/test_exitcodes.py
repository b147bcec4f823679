"""Which exit codes are worth another attempt."""

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.exitcodes import EXIT_CODES, OTHER, OTHER_SIGNAL, ExitClass, ExitCode, exit_code

PERMANENT, RETRIED = ExitClass.PERMANENT, ExitClass.RETRIED


@pytest.mark.parametrize("code", [1, 2, 126, 127, 128, 139, -11, 3, 42, 120, 255, 256])
def test_what_the_program_did_itself_is_permanent(code: int) -> None:
    assert exit_code(code).class_ is PERMANENT


@pytest.mark.parametrize("code", [130, 137, 138, 143, -2, -9, -10, -15, 129, 134, -6, 135, -7, 192, -64])
def test_what_was_done_to_the_program_is_tried_again(code: int) -> None:
    assert exit_code(code).class_ is RETRIED


@given(st.sampled_from([one for one in signal.Signals if one <= 64]))
def test_a_shell_and_torchrun_mean_the_same_by_a_signal(number: signal.Signals) -> None:
    assert exit_code(-number) is exit_code(128 + number)


@pytest.mark.parametrize("row", [row for row in EXIT_CODES if row.signal], ids=lambda row: row.code)
def test_the_signals_in_the_table_have_their_names(row: ExitCode) -> None:
    assert row.meaning.startswith(signal.Signals(row.signal or 0).name + ": ")


@given(st.integers())
def test_every_number_falls_under_one_row(code: int) -> None:
    row = exit_code(code)
    assert row in (*EXIT_CODES, OTHER, OTHER_SIGNAL)
    assert row.meaning.endswith(".")


def test_codes_of_the_table_are_distinct_and_in_order() -> None:
    codes = [row.code or 0 for row in EXIT_CODES]
    assert codes == sorted(set(codes))
