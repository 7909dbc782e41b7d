"""Exception classes as programs define them: with attributes, slots and several bases."""


class Custom(Exception):
    def __init__(self, x, *, code=3):
        super().__init__(f"custom {code}")
        self.x = x
        self.code = code

    def __str__(self):
        return f"Custom with {self.code}"


class Slotted(ValueError):
    __slots__ = ("extra",)

    def __init__(self, extra):
        super().__init__("slotted", extra)
        self.extra = extra


class Child(Custom, KeyError):
    pass
