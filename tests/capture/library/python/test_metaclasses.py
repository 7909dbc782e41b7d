"""Classes and metaclasses that the compiled function makes: what `type` itself does for them, and
what C code would ask of them while the function is captured."""

import torch

from tests.support.against_eager import check

X = torch.arange(3.0)


def test_the_representation_of_type():
    def program(x):
        mark = "!"

        class Meta(type):
            def __repr__(cls):
                return super().__repr__() + mark

            def __str__(cls):
                return "<" + super().__str__()

        class Made(metaclass=Meta):
            pass

        return x + 1, repr(Made), str(Made), f"{Made} {Made!r}"

    check(program, X)


def test_texts_with_objects_that_the_program_makes():
    def program(x, n):
        mark = "!"

        class Meta(type):
            def __repr__(cls):
                return cls.__name__ + mark

        class Made(metaclass=Meta):
            attribute = n

            def __repr__(self):
                return f"{n}{mark}"

            def __format__(self, spec):
                return spec + mark

        return (
            x + 1, "%s" % Made, "%r %5d" % (Made(), n), "%(a)s %(a)r" % {"a": Made}, "%s" % [Made],
            "{}".format(Made), "{0.attribute} {0:x}".format(Made()), "{a}".format_map({"a": Made}),
            "{} {!r}".format([Made], (Made, Made())),
        )  # fmt: skip

    check(program, X, 4)


def test_numbers_of_enumerations_in_texts():
    def program(x):
        import enum

        class Kind(enum.IntEnum):
            FIRST = 1

            def __repr__(self):
                return f"kind {int(self)}"

        return x + 1, "%d" % Kind.FIRST, "%r" % Kind.FIRST, "%s" % (Kind.FIRST,)

    check(program, X)


def test_a_metaclass_that_lists_names():
    def program(x):
        class Meta(type):
            def __dir__(cls):
                return ["first", *[name for name in super().__dir__() if name == "own"]]

        class Made(metaclass=Meta):
            own = 1

        return x + 1, dir(Made), "own" in dir(Made()), "first" in dir(Made())

    check(program, X)


def test_subclasses_that_the_program_makes():
    def program(x):
        class Base:
            scale = 1

        class First(Base):
            scale = 2

        class Second(Base):
            scale = 3

        return [x * cls.scale for cls in Base.__subclasses__()], First.__subclasses__()

    check(program, X)


def test_a_metaclass_that_orders_the_bases():
    class Meta(type):
        def mro(cls):
            calls.append(cls.__name__)
            return super().mro()

    calls: list[str] = []

    def program(x):
        class Made(metaclass=Meta):
            scale = 2

        return x * Made.scale, len(calls)

    check(lambda x: (calls.clear(), program(x))[1], X, breaks=None)
