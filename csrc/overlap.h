// Whether tensors that lie in one memory have elements in common.
#pragma once

#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace pliant {

// A tensor in memory: its offset and strides count in elements, or all of them in bytes.
struct Strided {
  c10::IntArrayRef sizes, strides;
  int64_t offset;
};

// Whether two elements of the tensor may be in one place. May be true where none are, if strides are
// not nested in one another.
bool may_overlap_itself(const Strided& tensor);

// Whether the two have an element in common, other than, if `elementwise`, each with the one at the
// same index. True if it takes too long to find out.
bool may_overlap(const Strided& one, const Strided& other, bool elementwise);

}  // namespace pliant
