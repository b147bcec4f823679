"""Says which rank it is, again and again; rank 1 fails once a file tells it to."""

import os
import sys
import time
from pathlib import Path

rank = int(os.environ["RANK"])
said = 0
while not Path("/tmp/fail").exists():
    print(f"I am rank {rank} for the {said}th time", flush=True)
    said += 1
    time.sleep(0.1)
print("ValueError: boom", file=sys.stderr, flush=True)
sys.exit(42)
