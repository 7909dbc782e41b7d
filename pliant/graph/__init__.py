"""From the captured graph to a functional one: operators of ATen on values that never change
(`functionalize`), and from there to definitions and calls (`lower`)."""
