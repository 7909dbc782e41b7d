#include "overlap.h"

#include <c10/util/SmallVector.h>

#include <algorithm>

namespace pliant {

namespace {

constexpr int kMostSteps = 100'000;

// A stride, and how many steps of it the one and the other tensor can take at most.
struct Reach { int64_t stride, one, other; };

using Reaches = c10::SmallVector<Reach, 8>;

// Strides of dimensions with several elements in several places, with the last index.
c10::SmallVector<std::pair<int64_t, int64_t>, 8> moving(const Strided& tensor) {
  c10::SmallVector<std::pair<int64_t, int64_t>, 8> found;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] != 1 && tensor.strides[d] != 0) {
      found.emplace_back(tensor.strides[d], tensor.sizes[d] - 1);
    }
  }
  return found;
}

bool is_empty(const Strided& tensor) {
  return std::find(tensor.sizes.begin(), tensor.sizes.end(), 0) != tensor.sizes.end();
}

int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && a < 0); }

// Whether some element of the one lies `distance` behind some element of the other. `rest` has the
// largest stride first.
bool meets(int64_t distance, const Reach* rest, const Reach* end, int& steps) {
  if (++steps > kMostSteps) return true;
  if (rest == end) return distance == 0;
  int64_t ahead = 0, behind = 0;
  for (const Reach* inner = rest + 1; inner != end; ++inner) {
    ahead += inner->stride * inner->one;
    behind += inner->stride * inner->other;
  }
  int64_t first = std::max(-rest->other, -floor_div(ahead - distance, rest->stride));
  int64_t last = std::min(rest->one, floor_div(distance + behind, rest->stride));
  for (int64_t n = first; n <= last; ++n) {
    if (meets(distance - rest->stride * n, rest + 1, end, steps)) return true;
  }
  return false;
}

}  // namespace

bool may_overlap_itself(const Strided& tensor) {
  if (is_empty(tensor)) return false;
  c10::SmallVector<std::pair<int64_t, int64_t>, 8> dims;
  for (size_t d = 0; d < tensor.sizes.size(); ++d) {
    if (tensor.sizes[d] != 1) dims.emplace_back(tensor.strides[d], tensor.sizes[d] - 1);
  }
  std::sort(dims.begin(), dims.end());
  int64_t span = 0;
  for (auto [stride, last] : dims) {
    if (stride <= span) return true;
    span += stride * last;
  }
  return false;
}

bool may_overlap(const Strided& one, const Strided& other, bool elementwise) {
  if (is_empty(one) || is_empty(other)) return false;
  auto mine = moving(one), theirs = moving(other);
  // Eager PyTorch takes two tensors for the same only if all of their strides are.
  if (one.offset == other.offset && one.strides == other.strides && mine == theirs) {
    return !elementwise;
  }
  Reaches reaches;
  for (auto [stride, last] : mine) reaches.push_back({stride, last, 0});
  for (auto [stride, last] : theirs) reaches.push_back({stride, 0, last});
  std::sort(reaches.begin(), reaches.end(),
            [](const Reach& a, const Reach& b) { return a.stride > b.stride; });
  size_t count = 0;
  for (const Reach& reach : reaches) {
    if (count > 0 && reaches[count - 1].stride == reach.stride) {
      reaches[count - 1].one += reach.one;
      reaches[count - 1].other += reach.other;
    } else {
      reaches[count++] = reach;
    }
  }
  int steps = 0;
  return meets(other.offset - one.offset, reaches.data(), reaches.data() + count, steps);
}

}  // namespace pliant
