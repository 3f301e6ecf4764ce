#include "coordinator/rpc/time_share.h"

#include <algorithm>

#include "base/units.h"

namespace longhaul::coordinator {

absl::Duration TimeShare::Left(const Taken& taken, MonoTime now) const {
  return std::max(absl::ZeroDuration(), taken.time - share_ * (now - taken.at));
}

Status TimeShare::MayAsk(const std::string& member, MonoTime now) const {
  const std::lock_guard lock(mutex_);
  const auto found = taken_.find(member);
  if (found == taken_.end()) return absl::OkStatus();
  const absl::Duration over = Left(found->second, now) - burst_;
  if (over <= absl::ZeroDuration()) return absl::OkStatus();
  return ResourceExhausted(
      "answers to {} have taken more of the coordinator's time than a member's share, {:g} % and "
      "{} at once; ask again in {}",
      member, 100 * share_, longhaul::FormatDuration(burst_),
      longhaul::FormatDuration(over / share_));
}

void TimeShare::Took(const std::string& member, absl::Duration time, MonoTime now) {
  const std::lock_guard lock(mutex_);
  const auto [own, is_new] = taken_.try_emplace(member, Taken{.time = {}, .at = now});
  own->second = {Left(own->second, now) + time, now};
  // Only a member that asked lately has an entry.
  if (is_new)
    std::erase_if(taken_,
                  [&](const auto& one) { return Left(one.second, now) == absl::ZeroDuration(); });
}

}  // namespace longhaul::coordinator
