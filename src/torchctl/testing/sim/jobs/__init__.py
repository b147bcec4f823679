"""The Job controller of the simulator."""
