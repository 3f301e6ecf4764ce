// Keys with which members change runs in the dashboard. A key says whose it is and until when it
// counts, and ends with an HMAC by a secret of the coordinator, which stores no keys. Whoever has a
// key may do what its owner may do through the dashboard. Pure functions, but for LoadOrMake.
#pragma once

#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/rpc/caller.h"

namespace longhaul::coordinator {

inline constexpr absl::Duration kDefaultDashboardKeyLife = absl::Hours(12);
inline constexpr absl::Duration kLongestDashboardKeyLife = absl::Hours(24 * 30);
inline constexpr size_t kMostDashboardKeyBytes = 1024;

class DashboardKeys {
 public:
  // `secret`: at least 32 bytes that nobody else knows.
  explicit DashboardKeys(std::string secret) : secret_(std::move(secret)) {}

  // Makes a key of `owner` that counts until `until`: "lhd1.CONTENT.HMAC", URL-safe.
  std::string Make(const Caller& owner, absl::Time until) const;
  // Returns the owner. Does not know whether the owner is still a member. kUnauthenticated: the
  // text is no key of this coordinator, or it has expired.
  StatusOr<Caller> Check(std::string_view key, absl::Time now) const;

 private:
  std::string Proof(std::string_view content) const;

  const std::string secret_;
};

}  // namespace longhaul::coordinator
