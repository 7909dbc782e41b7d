"""Assumptions a capture made, as data: where a value came from (`source`), what is assumed of it
(`guard`), and the native tree that checks all of them on each call (`plan`)."""
