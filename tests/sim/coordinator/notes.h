// What happened in a simulation: the present virtual time, a log of notes, and the first violation.
// Not thread-safe.
#pragma once

#include <fmt/format.h>

#include <deque>
#include <string>
#include <utility>

#include "base/clock.h"
#include "tests/sim/coordinator/simulation.h"

namespace longhaul::coordinator::sim {

class Notes {
 public:
  // `print`: print every note to standard output.
  explicit Notes(bool print) : print_(print) {}

  absl::Duration elapsed() const { return now - start_; }
  template <class... Args>
  void Note(fmt::format_string<Args...> format, Args&&... args) {
    ++result.notes;
    std::string line = fmt::format("{:8.1f} ", absl::ToDoubleSeconds(elapsed())) +
                       fmt::format(format, std::forward<Args>(args)...);
    for (const char c : line) {
      result.hash = (result.hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }
    if (print_) fmt::print("{}\n", line);
    lines_.push_back(std::move(line));
    if (lines_.size() > kKept) lines_.pop_front();
  }
  // Only the first violation counts.
  template <class... Args>
  void Violate(fmt::format_string<Args...> format, Args&&... args) {
    if (!result.violation.empty()) return;
    result.violation = "two leaders: " + fmt::format(format, std::forward<Args>(args)...);
    Note("violation: {}", result.violation);
    result.tail = fmt::format("{}", fmt::join(lines_, "\n"));
  }
  // Counts a situation.
  void Saw(const std::string& what) { ++result.seen[what]; }

 private:
  static constexpr size_t kKept = 60;
  const MonoTime start_ = MonoTime() + absl::Hours(1);

 public:
  MonoTime now = start_;
  SimulationResult result;

 private:
  const bool print_;
  std::deque<std::string> lines_;
};

}  // namespace longhaul::coordinator::sim
