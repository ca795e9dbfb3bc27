#pragma once

#include <pybind11/pybind11.h>

#include <initializer_list>
#include <map>
#include <utility>

namespace fastloader::bindings {

/// A C++ enum as a class of Python. `member` gives the very object that the class holds, so that
/// Python may ask by `is`; a cast would make an equal one each time.
template <typename Value>
class Enum {
 public:
  /// Once, under the GIL, before anything mentions the class.
  static void bind(pybind11::module_& module, const char* name, const char* doc,
                   std::initializer_list<std::pair<const char*, Value>> members) {
    pybind11::enum_<Value> type(module, name, doc);
    for (const auto& [member, value] : members) {
      type.value(member, value);
      objects_[value] = pybind11::object(type.attr(member)).release();
    }
  }

  static pybind11::object member(Value value) {
    return pybind11::reinterpret_borrow<pybind11::object>(objects_.at(value));
  }

 private:
  // Leaked, as the module is.
  inline static std::map<Value, pybind11::handle>& objects_ =
      *new std::map<Value, pybind11::handle>;
};

}  // namespace fastloader::bindings
