"""What a protocol can do against the model, each by its name."""

from collections.abc import Iterable


class ModelViolation(ValueError):
    """A protocol broke a rule of the model.

    Attributes:
        rule: the rule, in a few words.
        step: name of the step.
        round_index: rounds ended before it.
        machine: the first machine that broke it; None where it is not one machine's doing.
        found, allowed: what was found, and what the model allows.
    """

    rule = "a rule of the model"

    def __init__(
        self, step: str, round_index: int, machine: int | None, found: object, allowed: object
    ):
        where = "" if machine is None else f", machine {machine}"
        super().__init__(
            f"{self.rule}: step {step!r}, round {round_index}{where}: found {found}, "
            f"allowed {allowed}"
        )
        self.step, self.round_index, self.machine = step, round_index, machine
        self.found, self.allowed = found, allowed

    def __reduce__(self):
        # By default an exception is rebuilt from its message, which these do not take.
        return type(self), (self.step, self.round_index, self.machine, self.found, self.allowed)


class MemoryExceeded(ModelViolation):
    """A machine keeps more words than its local memory."""

    rule = "memory words"


class SentTooMuch(ModelViolation):
    """A machine sends more words in a round than its local memory."""

    rule = "words sent"


class ReceivedTooMuch(ModelViolation):
    """A machine receives more words in a round than its local memory."""

    rule = "words received"


class InDegreeExceeded(ModelViolation):
    """A machine receives more messages than the step declares."""

    rule = "messages received"


class WordOutOfRange(ModelViolation):
    """A word is negative or too wide."""

    rule = "word range"


class UnknownMachine(ModelViolation):
    """A message is addressed to a machine that does not exist."""

    rule = "address"


class NotLocal(ModelViolation):
    """A step's rows depend on the rows of other machines."""

    rule = "locality"


class WrongShape(ModelViolation):
    """A step returns something else than it declares."""

    rule = "shape"


class Disagreement(ModelViolation):
    """Some machines know that a step need not be done, and others do not."""

    rule = "agreement to leave a step out"


_ORDER = (
    Disagreement,
    WrongShape,
    MemoryExceeded,
    UnknownMachine,
    SentTooMuch,
    WordOutOfRange,
    NotLocal,
    InDegreeExceeded,
    ReceivedTooMuch,
)


def first_of(violations: Iterable[ModelViolation]) -> ModelViolation:
    """The one that an engine names when blocks of machines break several rules in one step.

    Rules come in the order in which they are checked, then machines in theirs, so that all engines
    name the same.
    """

    def place(violation: ModelViolation) -> tuple[int, int]:
        machine = -1 if violation.machine is None else violation.machine
        return _ORDER.index(type(violation)), machine

    return min(violations, key=place)
