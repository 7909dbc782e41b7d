"""Random tensor programs, compared with eager PyTorch: the parts of `tools/fuzz.py`.

table       operators as templates of statements
program     a program and its calls as data, and as plain Python source
generate    a program from a seed
rounding    how far eager's own results move when operations round differently
compare     everything that can be seen of two calls
check       a program, eagerly and compiled
shrink      a smaller program with the same symptom
campaign    worker processes, crashes and hangs, findings by symptom
"""
