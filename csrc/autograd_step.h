// A compiled graph as one step of autograd.
#pragma once

#include "python.h"

namespace pliant {

PyTypeObject* init_autograd_step_type();  // null, with a Python error, if it fails

}  // namespace pliant
