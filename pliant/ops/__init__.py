"""What each ATen operator computes, as loops: a rule for each, a paragraph long. `indexed` has the
values that rules take and give, `lowering` the table of rules and what they may use."""
