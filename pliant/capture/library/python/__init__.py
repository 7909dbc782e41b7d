"""The language: built-in functions, classes and methods, exceptions, iteration."""
