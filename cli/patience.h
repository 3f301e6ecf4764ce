// Decides how long a command that follows a stream of the coordinator retries after the coordinator
// has gone. A stream may be quiet for hours, so time counts from the first call that found no
// coordinator, not from the last message. Reads no clock. Not thread-safe.
#pragma once

#include <optional>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::cli {

class Patience {
 public:
  explicit Patience(absl::Duration limit) : limit_(limit) {}

  // Call it when the coordinator has sent something.
  void Heard() { lost_.reset(); }
  // Call it after a call that found no coordinator. False: the coordinator has been away longer
  // than the limit, so give up.
  bool Lasts(MonoTime now) {
    if (!lost_) lost_ = now;
    return now - *lost_ <= limit_;
  }
  // Whether the last call found no coordinator.
  bool is_away() const { return lost_.has_value(); }
  absl::Duration limit() const { return limit_; }

 private:
  const absl::Duration limit_;
  std::optional<MonoTime> lost_;  // when the coordinator was first found away
};

}  // namespace longhaul::cli
