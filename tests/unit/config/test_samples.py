"""Where the code of the samples comes from."""

from pathlib import Path

import pytest
import yaml

CLONE = Path(__file__).parents[3]
SAMPLES = CLONE / "config" / "samples"


@pytest.mark.parametrize("job", sorted(SAMPLES.glob("job-*.yaml")), ids=lambda path: path.stem)
def test_no_sample_takes_code_from_somebody_else(job: Path) -> None:
    """A foreign repository changes, or goes; a sample's code is ours, or the reader's own."""
    workspace = yaml.safe_load(job.read_text())["spec"].get("volumes", {}).get("workspace", {})
    assert workspace.get("url", "https://git.example.com/").startswith("https://git.example.com/")


def test_the_gpu_queue_carries_the_example_script() -> None:
    queue = yaml.safe_load((SAMPLES / "queue-gpu-kai.yaml").read_text())
    (entry,) = queue["spec"]["resources"]
    assert entry["template"]["data"]["ddp.py"] == (CLONE / "examples" / "ddp.py").read_text()
