"""Which line of a failure's message says what went wrong."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchctl.api.errorline import error_line

WARNING = (
    "/usr/lib/python3/site-packages/torch/_subclasses/functional_tensor.py:283: UserWarning: Failed to initialize "
    "NumPy: No module named 'numpy' (Triggered internally at /pytorch/torch/csrc/utils/tensor_numpy.cpp:84.)\n"
    "  cpu = _conversion_method_template(device=torch.device('cpu'))\n"
)
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/app/train.py", line 9, in <module>\n'
    "    main()\n"
    "    ~~~~^^\n"
    '  File "/app/train.py", line 5, in main\n'
    '    raise ValueError("loss is nan")\n'
    "ValueError: loss is nan\n"
)
IGNORED = (
    "Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f>\n"
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3/site-packages/torch/utils/data/dataloader.py", line 1604, in __del__\n'
    "    self._shutdown_workers()\n"
    "AttributeError: 'NoneType' object has no attribute 'util'\n"
)
RANKED = "".join(f"[rank3]: {line}\n" for line in TRACEBACK.splitlines())
C10D = "[rank3]:[W1123 10:00:00.123456789 ProcessGroupNCCL.cpp:1476] Warning: destroy_process_group() was not called\n"
SIGNAL = "Signal 9 (SIGKILL) received by PID 41"
GROUP = (
    "  + Exception Group Traceback (most recent call last):\n"
    '  |   File "/app/train.py", line 3, in <module>\n'
    "  |     raise ExceptionGroup('two', [ValueError('a'), ValueError('b')])\n"
    "  | ExceptionGroup: two (2 sub-exceptions)\n"
    "  +-+---------------- 1 ----------------\n"
    "    | ValueError: a\n"
    "    +---------------- 2 ----------------\n"
    "    | ValueError: b\n"
    "    +------------------------------------\n"
)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("", ""),
        ("\n \n", ""),
        ("boom", "boom"),
        ("epoch 1\nepoch 2\n", "epoch 2"),
        (TRACEBACK, "ValueError: loss is nan"),
        (WARNING + TRACEBACK, "ValueError: loss is nan"),
        (TRACEBACK + WARNING, "ValueError: loss is nan"),
        (WARNING + RANKED + C10D, "ValueError: loss is nan"),
        ("..." + TRACEBACK[40:], "ValueError: loss is nan"),
        (TRACEBACK + "\tMissing key(s): a\n", "ValueError: loss is nan"),
        (
            f"{TRACEBACK}\nDuring handling, another occurred:\n\n{TRACEBACK[:-12]}b\n",
            "ValueError: b",
        ),
        (TRACEBACK + IGNORED, "ValueError: loss is nan"),
        (IGNORED + TRACEBACK, "ValueError: loss is nan"),
        ("epoch 2\n" + IGNORED, "epoch 2"),
        (IGNORED, "AttributeError: 'NoneType' object has no attribute 'util'"),
        (WARNING + TRACEBACK + SIGNAL, SIGNAL),
        ("epoch 2\n" + WARNING + C10D, "epoch 2"),
        ("epoch 2\n[W socket.cpp:601] the connection was refused", "epoch 2"),
        ("epoch 2\n[Worker 3] loss is nan", "[Worker 3] loss is nan"),
        (WARNING + C10D, C10D[len("[rank3]:") :].strip()),
        ('  File "a.py", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax', "SyntaxError: invalid syntax"),
        (GROUP, "ExceptionGroup: two (2 sub-exceptions)"),
        (GROUP[-90:], "ValueError: b"),
        ('File "a.py", line 1\n    x = = 1\n        ^\nSyntaxError: invalid syntax', "SyntaxError: invalid syntax"),
        ('  File "a.py", line 1, in f\n    half a traceb', "half a traceb"),
        ("[0]:\n  rank : 3 (local_rank: 1)\n  exitcode : 42 (pid: 41)", "exitcode : 42 (pid: 41)"),
    ],
)
def test_the_exception_counts_whatever_stands_around_it(message: str, expected: str) -> None:
    assert error_line(message) == expected


@given(st.text() | st.text(alphabet='ab"\n |[]rank1: File,line'))
def test_any_message_gives_one_of_its_lines(message: str) -> None:
    line = error_line(message)
    assert len(line.splitlines()) <= 1
    assert line in message


@pytest.mark.parametrize("repeated", ["1", ":", " ", "1 ", ":1", "|", '" '])
@pytest.mark.parametrize("begin", ["", "[W", "[W1 ", '  File "', "[rank1"])
def test_a_long_line_takes_less_than_a_second(begin: str, repeated: str) -> None:
    """Whoever runs a job writes these messages, of up to 4096 bytes, and the operator reads them for everybody."""
    began = time.process_time()
    error_line(begin + repeated * 4096)
    assert time.process_time() - began < 1
