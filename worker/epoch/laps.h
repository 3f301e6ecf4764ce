// Records, as text for a log line, how long each part of a piece of work took.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::worker {

// Makes a text such as "12.3 ms reading, 4.5 ms sending".
class Laps {
 public:
  // Ends the part `what`, which began at the last call or at the construction of this object.
  void End(std::string_view what) {
    const MonoTime now = Now();
    text_ += fmt::format("{}{:.1f} ms {}", text_.empty() ? "" : ", ",
                         absl::ToDoubleMilliseconds(now - last_), what);
    last_ = now;
  }
  const std::string& text() const { return text_; }

 private:
  MonoTime last_ = Now();
  std::string text_;
};

}  // namespace longhaul::worker
