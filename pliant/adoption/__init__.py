"""pliant where the code that calls torch.compile can't be changed."""
