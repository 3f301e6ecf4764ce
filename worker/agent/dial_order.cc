#include "worker/agent/dial_order.h"

#include <algorithm>

namespace longhaul::worker {
namespace {

constexpr absl::Duration kFirstBackOff = absl::Milliseconds(200);
constexpr absl::Duration kLongestBackOff = absl::Seconds(5);
// Short, because a standby may be about to take over.
constexpr absl::Duration kLongestBackOffOfSeveral = absl::Seconds(1);

}  // namespace

NextDial DialOrder::After(const SessionEnding& ending) {
  const bool another = !ending.serves && coordinators_ > 1;
  welcomed_ |= ending.welcomed;
  // Every coordinator is tried before a pause. One that serves, and merely refused this connection,
  // is dialled again after the pause.
  if (!ending.serves && ++tried_ < coordinators_) return {.another = another, .pause = {}};
  const absl::Duration longest = coordinators_ == 1 ? kLongestBackOff : kLongestBackOffOfSeveral;
  back_off_ = welcomed_ ? kFirstBackOff : std::min(2 * back_off_, longest);
  tried_ = 0;
  welcomed_ = false;
  return {.another = another, .pause = back_off_};
}

}  // namespace longhaul::worker
