// Operations on Python's floats that need no Python.
#pragma once

#include <string_view>

namespace pliant {

// False where Python has to decide: where it raises, or might round in another way.
using Arithmetic = bool (*)(double a, double b, double& result);

// The operation with this name in pliant/sym/floats.py and cond.py; null if it isn't known. What
// takes one number is shown 0 for the other.
Arithmetic arithmetic(std::string_view name);

}  // namespace pliant
