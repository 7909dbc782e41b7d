#include "arithmetic.h"

#include <cmath>
#include <unordered_map>

namespace pliant {

namespace {

bool power(double a, double b, double& result) {
  if (!std::isfinite(a) || !std::isfinite(b) || (a == 0 && b < 0)) return false;
  if (a < 0 && b != std::floor(b)) return false;  // a complex number
  result = std::pow(a, b);
  return std::isfinite(result);
}

template <double (*function)(double)>
bool finite(double a, double, double& result) {
  if (!std::isfinite(a)) return false;
  result = function(a);
  return std::isfinite(result);
}

using Real = double (*)(double);

// A name, and an expression of a, b and the result.
#define PLIANT_ARITHMETIC(name, value) \
  {name, [](double a, [[maybe_unused]] double b, double& result) { result = value; return true; }}

const std::unordered_map<std::string_view, Arithmetic> kOperations = {
    PLIANT_ARITHMETIC("to_float", a),
    PLIANT_ARITHMETIC("fadd", a + b),
    PLIANT_ARITHMETIC("fsub", a - b),
    PLIANT_ARITHMETIC("fmul", a * b),
    PLIANT_ARITHMETIC("fneg", -a),
    PLIANT_ARITHMETIC("fabs", std::fabs(a)),
    PLIANT_ARITHMETIC("fmin", b < a ? b : a),
    PLIANT_ARITHMETIC("fmax", b > a ? b : a),
    PLIANT_ARITHMETIC("fle", a <= b),
    PLIANT_ARITHMETIC("flt", a < b),
    PLIANT_ARITHMETIC("feq", a == b),
    PLIANT_ARITHMETIC("fne", a != b),
    PLIANT_ARITHMETIC("not", a == 0),
    {"truediv", [](double a, double b, double& result) { result = a / b; return b != 0; }},
    {"fpow", power},
    {"math.sqrt", finite<static_cast<Real>(std::sqrt)>},
    {"math.exp", finite<static_cast<Real>(std::exp)>},
    {"math.log", finite<static_cast<Real>(std::log)>},
    {"math.sin", finite<static_cast<Real>(std::sin)>},
    {"math.cos", finite<static_cast<Real>(std::cos)>},
};

#undef PLIANT_ARITHMETIC

}  // namespace

Arithmetic arithmetic(std::string_view name) {
  auto found = kOperations.find(name);
  return found == kOperations.end() ? nullptr : found->second;
}

}  // namespace pliant
