// Virtual time of a simulation: a queue of actions by time, and a log of notes on what happened.
// Not thread-safe. Actions run inside Step, one at a time, and may add actions.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"

namespace longhaul::coordinator::sim {

class Timeline {
 public:
  // `keep_all`: print every note to standard output.
  explicit Timeline(bool keep_all = false) : keep_all_(keep_all) {}

  MonoTime now() const { return now_; }
  absl::Duration elapsed() const { return now_ - start_; }
  // Runs `action` after `delay`. A negative delay counts as zero. Actions of the same time run in
  // the order in which they were added.
  void After(absl::Duration delay, std::function<void()> action) {
    const MonoTime at = now_ + std::max(delay, absl::ZeroDuration());
    queue_.emplace(std::pair{at, next_++}, std::move(action));
  }
  // Moves the time to the next action and runs it. False: there is no action.
  bool Step() {
    if (queue_.empty()) return false;
    auto node = queue_.extract(queue_.begin());
    now_ = node.key().first;
    node.mapped()();
    return true;
  }

  // Adds a note, with the elapsed virtual seconds before the text.
  template <class... Args>
  void Note(fmt::format_string<Args...> format, Args&&... args) {
    line_.clear();
    fmt::format_to(std::back_inserter(line_), "{:10.4f} ", absl::ToDoubleSeconds(elapsed()));
    fmt::format_to(std::back_inserter(line_), format, std::forward<Args>(args)...);
    for (const char c : line_) hash_ = (hash_ ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    ++notes_;
    if (keep_all_) std::fprintf(stdout, "%s\n", line_.c_str());
    std::string& slot = last_[notes_ % kLast];
    slot = line_;
  }
  // Returns a hash of all notes so far. Simulations with equal hashes went the same way.
  uint64_t hash() const { return hash_; }
  uint64_t notes() const { return notes_; }
  // Returns the newest notes, at most 80, oldest first, one on each line.
  std::string Tail() const {
    std::string text;
    for (uint64_t i = notes_ < kLast ? 1 : notes_ - kLast + 1; i <= notes_; ++i) {
      text += last_[i % kLast] + "\n";
    }
    return text;
  }

 private:
  static constexpr uint64_t kLast = 80;
  const bool keep_all_;
  const MonoTime start_ = MonoTime() + absl::Hours(1);
  MonoTime now_ = start_;
  std::map<std::pair<MonoTime, uint64_t>, std::function<void()>> queue_;
  uint64_t next_ = 0;
  std::string line_;
  std::string last_[kLast];
  uint64_t notes_ = 0;
  uint64_t hash_ = 0xcbf29ce484222325;
};

}  // namespace longhaul::coordinator::sim
