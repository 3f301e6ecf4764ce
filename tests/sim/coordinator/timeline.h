// Virtual time: what happens when, one thing at a time; and a record of what happened.
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
  explicit Timeline(bool keep_all = false) : keep_all_(keep_all) {}

  MonoTime now() const { return now_; }
  absl::Duration elapsed() const { return now_ - start_; }
  void After(absl::Duration delay, std::function<void()> action) {
    const MonoTime at = now_ + std::max(delay, absl::ZeroDuration());
    // What is due at one time happens in the order in which it was asked for.
    queue_.emplace(std::pair{at, next_++}, std::move(action));
  }
  // Lets the next thing happen. False: nothing is left.
  bool Step() {
    if (queue_.empty()) return false;
    auto node = queue_.extract(queue_.begin());
    now_ = node.key().first;
    node.mapped()();
    return true;
  }

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
  // The hash of all notes so far: two simulations with equal hashes went the same way.
  uint64_t hash() const { return hash_; }
  uint64_t notes() const { return notes_; }
  // The newest notes, oldest first.
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
