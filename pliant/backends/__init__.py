"""What can be done with a captured graph: `registry` finds a backend by name, the other modules are
backends. A backend is `backend(gm, example_inputs) -> callable`, as for torch.compile."""
