// How long a command that follows something tries again after the coordinator went away. A stream
// may be quiet for hours, so the time counts from the first call that found nobody, not from the
// last message. Pure.
#ifndef LONGHAUL_COORDINATOR_CLI_PATIENCE_H_
#define LONGHAUL_COORDINATOR_CLI_PATIENCE_H_

#include <optional>

#include "absl/time/time.h"
#include "base/clock.h"

namespace longhaul::cli {

class Patience {
 public:
  explicit Patience(absl::Duration limit) : limit_(limit) {}

  // The coordinator has said something.
  void Heard() { lost_.reset(); }
  // A call found nobody at `now`. False: so it has been for longer than the limit.
  bool Lasts(MonoTime now) {
    if (!lost_) lost_ = now;
    return now - *lost_ <= limit_;
  }
  // Whether the last call found nobody.
  bool is_away() const { return lost_.has_value(); }
  absl::Duration limit() const { return limit_; }

 private:
  const absl::Duration limit_;
  std::optional<MonoTime> lost_;  // when contact was lost; nullopt: it was not
};

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_PATIENCE_H_
