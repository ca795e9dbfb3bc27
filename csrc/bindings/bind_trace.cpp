#include <pybind11/stl.h>

#include <vector>

#include "base/trace.h"
#include "bindings/gil.h"
#include "bindings/register.h"

namespace py = pybind11;

namespace fastloader::bindings {
namespace {

py::list stop() {
  std::vector<trace::ThreadEvents> threads;
  {
    const WithoutGil unlocked;
    threads = trace::stop();
  }
  py::list result;
  for (const trace::ThreadEvents& thread : threads) {
    py::list events;
    for (const trace::Event& event : thread.events) {
      events.append(py::make_tuple(event.name, event.begin, event.end));
    }
    result.append(py::make_tuple(thread.thread, thread.name, thread.dropped, events));
  }
  return result;
}

}  // namespace

void register_trace(py::module_& module) {
  module.def(
      "trace_start",
      [](size_t events_per_thread) {
        const WithoutGil unlocked;
        return trace::start(events_per_thread);
      },
      py::arg("events_per_thread"),
      "Threads keep what they do from now on; the first so many events each. False: they do so "
      "already, for another trace.");
  module.def(
      "trace_stop", &stop,
      "[(thread id, name, events that found no room, [(name, begin, end)])], in nanoseconds of "
      "time.perf_counter_ns().");
}

}  // namespace fastloader::bindings
