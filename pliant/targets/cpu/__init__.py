"""Loops become machine code: LLVM IR as text, and the compiler that runs in this process."""
