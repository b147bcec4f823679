"""How a message counts."""

__all__ = ["agree", "counted", "every"]


def counted(number: int, noun: str) -> str:
    """`1 pod`, `2 pods`: a number of things whose plural ends in s."""
    return f"{number} {noun}{agree(number, '', 's')}"


def every(number: int, noun: str) -> str:
    """`the pod`, `all 2 pods`."""
    return agree(number, f"the {noun}", f"all {counted(number, noun)}")


def agree(number: int, one: str, many: str) -> str:
    """The word that goes with so many things: `is` or `are`."""
    return one if number == 1 else many
