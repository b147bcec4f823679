"""The control plane under test is real, restartable, and never outlives who started it."""

from torchctl.testing.controlplane import ControlPlane


async def test_the_admin_reaches_every_part(control_plane: ControlPlane) -> None:
    namespaces = await control_plane.kubectl("get", "namespaces", "--output=name")
    assert "namespace/default" in namespaces.split()
