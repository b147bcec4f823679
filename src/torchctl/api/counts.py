"""Numbers of things in messages: singular and plural."""

__all__ = ["agree", "counted", "every"]


def counted(number: int, noun: str) -> str:
    """Returns a number of things whose plural ends in s: `1 pod`, `2 pods`."""
    return f"{number} {noun}{agree(number, '', 's')}"


def every(number: int, noun: str) -> str:
    """Returns `the pod` or `all 2 pods`."""
    return agree(number, f"the {noun}", f"all {counted(number, noun)}")


def agree(number: int, one: str, many: str) -> str:
    """Returns the word that agrees with the number: `is` or `are`."""
    return one if number == 1 else many
