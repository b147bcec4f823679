"""Counts, saves what it counted when it is told to stop, and ends with 0 then; without PyTorch."""

import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

COUNT = Path(os.environ["TORCHRUN_CHECKPOINT_DIR"], "count-of-" + os.environ["TORCHRUN_JOB_NAME"])
count = int(COUNT.read_text()) if COUNT.exists() else 0


def save(_number: int, _frame: FrameType | None) -> None:
    COUNT.write_text(str(count))
    print(f"saved {count}", flush=True)
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
print(f"begins at {count}", flush=True)
while count < int(sys.argv[1]):
    time.sleep(0.1)
    count += 1
    if count % 10 == 0:
        print(f"counted {count}", flush=True)
print("done", flush=True)
