#include "profile.h"

#include <unordered_map>
#include <vector>

namespace pliant {

namespace {

struct Owner { int64_t number, turns; };

struct Recorded { int64_t owner, turn, thread; Span span; };

// With the interpreter's lock. The owners are held.
std::unordered_map<PyObject*, Owner> owners;
std::vector<Recorded> recorded;
size_t limit = 0;
int64_t period = 1;  // of the turns of an owner, every which one is kept

// profile(limit): see the stub.
PyObject* profile(PyObject*, PyObject* arg) {
  const Py_ssize_t most = PyLong_AsSsize_t(arg);
  if (most == -1 && PyErr_Occurred() != nullptr) return nullptr;
  auto bytes = static_cast<Py_ssize_t>(recorded.size() * sizeof(Recorded));
  auto* data = reinterpret_cast<const char*>(recorded.data());
  Ref spans = Ref::owned(PyBytes_FromStringAndSize(data, bytes));
  Ref list = Ref::owned(PyList_New(std::ssize(owners)));
  if (!spans || !list) return nullptr;
  for (auto [object, owner] : owners) {
    PyObject* pair = Py_BuildValue("(OL)", object, static_cast<long long>(owner.turns));
    if (pair == nullptr) return nullptr;
    PyList_SET_ITEM(list.get(), owner.number, pair);
  }
  auto dropped = std::exchange(owners, {});
  recorded = {};
  limit = static_cast<size_t>(most);
  period = 1;
  profiling = most > 0;
  for (auto [object, owner] : dropped) Py_DECREF(object);
  return PyTuple_Pack(2, list.get(), spans.get());
}

}  // namespace

void record(PyObject* owner, std::span<const Span> spans) noexcept {
  if (!is_profiling()) return;  // no longer
  try {
    auto [place, is_new] = owners.try_emplace(owner, Owner{std::ssize(owners), 0});
    if (is_new) Py_INCREF(owner);
    const int64_t turn = place->second.turns++;
    if (turn % period != 0) return;
    auto thread = static_cast<int64_t>(PyThread_get_thread_native_id());
    for (const Span& span : spans) recorded.push_back({place->second.number, turn, thread, span});
    // There are too many: half of them tell as much.
    while (recorded.size() > limit) {
      period *= 2;
      if (!std::erase_if(recorded, [](const Recorded& one) { return one.turn % period != 0; })) break;
    }
  } catch (const std::bad_alloc&) {  // then this is not measured
  }
}

PyMethodDef profile_methods[] = {{"profile", profile, METH_O, "profile(limit): see the stub."},
                                 {nullptr, nullptr, 0, nullptr}};

}  // namespace pliant
