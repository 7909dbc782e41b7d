"""Every cause of a graph break: a stable code, what it means, and what a user can do about it.

`docs/graph_breaks.md` is made from this table; a test keeps the two the same.
"""

from __future__ import annotations

from pliant.base.values import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """Why something can't be captured, and the remedy."""

    why: str
    remedy: str


_REPLACE = "Move it out of the compiled function, or accept the break."

BREAKS: dict[str, Cause] = {
    "data-dependent-branch": Cause(
        "Python must know the tensor's data to choose a branch, and data exist only at run time.",
        "Use torch.where (or torch.cond) to choose between results, or move the test out.",
    ),
    "data-dependent": Cause(
        "The result depends on the data in a tensor, which exist only at run time.",
        "Keep the value in a tensor, or move the reading of data out of the compiled function.",
    ),
    "data-dependent-number": Cause(
        "Python must know a number that is read from a tensor, or drawn at random, at run time.",
        "State what you know of it with pliant.check(...), or keep the number in a tensor.",
    ),
    "operation-raises": Cause(
        "The operation rejects these arguments; eager PyTorch runs it, to raise its own error.",
        "Check the shapes and types of the arguments.",
    ),
    "operation-argument": Cause(
        "An operation of the graph takes dense tensors and plain data only.",
        "Pass tensors, numbers, strings, dtypes, devices, or containers of them.",
    ),
    "operation-result": Cause(
        "The operation gives something that is neither a tensor nor plain data.", _REPLACE
    ),
    "no-meta-kernel": Cause(
        "PyTorch has no shape rule (meta kernel) for this operator.",
        "Register one with torch.library.register_fake if the operator is yours.",
    ),
    "tensor-kind": Cause(
        "This operation on a tensor subclass, or this way to make one, is not captured.",
        _REPLACE,
    ),
    "tensor-method": Cause("This method does more than compute a tensor.", _REPLACE),
    "tensor-attribute": Cause("This attribute of a tensor is not known during capture.", _REPLACE),
    "not-generated": Cause(
        "No code can be generated for this operation, so PyTorch runs it, between two graphs that "
        "are compiled.",
        "Nothing has to be done. If that takes too long, replace it by other operations.",
    ),
    "unsupported": Cause("Capture does not know this operation.", _REPLACE),
    "cached-function": Cause(
        "A function under functools.cache or lru_cache keeps what it returned for the same objects "
        "that it was given, and here only Python knows these, or which results it keeps.",
        "Call the function outside, or without its cache: `function.__wrapped__(...)`.",
    ),
    "unsupported-function": Cause(
        "It is implemented in C, so it can't be followed, and capture has no knowledge of it.",
        "Use a PyTorch or plain Python equivalent, or keep it outside.",
    ),
    "unsupported-method": Cause(
        "It is implemented in C, so it can't be followed, and capture has no knowledge of it.",
        "Use a PyTorch or plain Python equivalent, or keep it outside.",
    ),
    "unsupported-class": Cause("The class is implemented in C and not known to capture.", _REPLACE),
    "unsupported-attribute": Cause("The attribute is computed by C code.", _REPLACE),
    "unsupported-descriptor": Cause("The descriptor is implemented in C.", _REPLACE),
    "unsupported-instruction": Cause("This instruction of Python is not followed.", _REPLACE),
    "attribute-write": Cause("This attribute can't be written during capture.", _REPLACE),
    "body-effect": Cause(
        "PyTorch calls this function when it wants to, maybe several times, so what it does to "
        "Python objects around it can't be replayed.",
        "Let the function only compute and return tensors.",
    ),
    "opaque-object": Cause("Nothing is known of objects of this type.", _REPLACE),
    "outside-iterator": Cause(
        "The iterator was made outside, so where it stands is not known.",
        "Pass the list or range itself, or make the iterator inside the compiled function.",
    ),
    "custom-hash": Cause("Hashing the object would run code of its class.", "Use plain keys."),
    "cannot-rebuild": Cause(
        "The object would have to be handed to Python code in the middle of its use.", _REPLACE
    ),
    "not-constant": Cause("It needs a value that is known only at run time.", _REPLACE),
    "bad-arguments": Cause(
        "The arguments do not fit; Python is asked to raise its own error.",
        "Correct the call.",
    ),
    "not-followed": Cause(
        "It belongs to a library that is about files, processes or compilers, not tensors.",
        "Move it out of the compiled function, or accept the break.",
    ),
    "disabled": Cause("The function is marked with pliant.disable.", "Remove the mark."),
    "user": Cause("The program asks for a break here (graph_break).", "Remove the call."),
    "skipped-frame": Cause(
        "The program asks to run this function in plain Python (skip_frame).", "Remove the call."
    ),
    "rest-of-frame": Cause(
        "The program asks to run the rest of this function in plain Python (step_unsupported).",
        "Remove the call.",
    ),
    "class-definition": Cause(
        "Making a class runs code of its metaclass and decorators.",
        "Define the class outside of the compiled function.",
    ),
    "coroutine": Cause("Coroutines run in an event loop.", "Compile the tensor code they call."),
    "import": Cause(
        "Importing a module for the first time runs its code.", "Import it at the top."
    ),
    "io": Cause(
        "Input and output happen at a time that matters.",
        "Move it out of the compiled function.",
    ),
    "warning": Cause("This warning can't be given after the graph has run.", _REPLACE),
    "logging": Cause("This log record can't be made after the graph has run.", _REPLACE),
    "clock": Cause("The time is known only when the program runs.", "Take the time outside."),
    "random-state": Cause(
        "This use of a random state of Python or NumPy can't be replayed before the graph.",
        "Use torch's random functions, which are captured.",
    ),
    "identity-number": Cause(
        "An object's number (id) differs from run to run.", "Compare with `is`."
    ),
    "too-deep": Cause("The program calls itself too deeply to be followed.", "Use a loop."),
    "too-long": Cause(
        "Capture follows a loop round by round, and this one has too many, or ends only by an "
        "error in the data; the function that has the loop runs in plain Python.",
        "Compile what is inside the loop, and leave the loop outside.",
    ),
}
