"""Integers with names: the algebra of sizes, what is known about them, and who asked."""

from pliant.sym import printing, rules  # noqa: F401  (they fill the tables of expr)
