"""PyTorch, besides its operators: transforms, hooks, autograd, random state, directives."""
