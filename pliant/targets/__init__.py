"""What knows a machine: one package for each kind, all with the interface in `target`."""
