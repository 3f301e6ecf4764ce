// Bounds how much of the coordinator's time one member takes by questions, such as lists of its
// runs, so that it keeps no others waiting. Thread-safe.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace longhaul::coordinator {

class TimeShare {
 public:
  // A member may take `share` of one processor's time, and `burst` at once.
  TimeShare(double share, absl::Duration burst) : share_(share), burst_(burst) {}

  // kResourceExhausted: the answers for this member have taken more; the message says when to ask
  // again.
  Status MayAsk(const std::string& member, MonoTime now) const;
  // Counts the time that an answer took.
  void Took(const std::string& member, absl::Duration time, MonoTime now);

 private:
  struct Taken {
    absl::Duration time;  // at `at`; goes down by share_ of the time that passes
    MonoTime at;
  };
  absl::Duration Left(const Taken& taken, MonoTime now) const;

  const double share_;
  const absl::Duration burst_;
  mutable std::mutex mutex_;            // guards taken_
  std::map<std::string, Taken> taken_;  // by member, where not zero
};

}  // namespace longhaul::coordinator
