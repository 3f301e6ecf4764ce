#include "coordinator/rpc/dashboard_keys.h"

#include <fmt/core.h>

#include <utility>

#include "absl/strings/escaping.h"
#include "base/hash.h"
#include "longhaul/v1/observe.pb.h"

namespace longhaul::coordinator {
namespace {

constexpr std::string_view kPrefix = "lhd1.";

std::string Escaped(std::string_view bytes) {
  return absl::WebSafeBase64Escape(std::string(bytes));
}

Status NoKey() {
  return absl::UnauthenticatedError(
      "this is no key of this coordinator; `longhaul dashboard-key` prints one");
}

}  // namespace

std::string DashboardKeys::Proof(std::string_view content) const {
  // The prefix keeps these apart from whatever else may be made of such a secret.
  return HmacSha256(secret_, std::string(kPrefix) + std::string(content));
}

std::string DashboardKeys::Make(const Caller& owner, absl::Time until) const {
  v1::DashboardKeyContent content;
  if (owner.member) {
    content.set_name(owner.member->name);
    content.set_role(std::string(ToString(owner.member->role)));
    content.set_key_sha256(owner.key_sha256);
  }
  content.set_until_unix_s(absl::ToUnixSeconds(until));
  const std::string bytes = content.SerializeAsString();
  return fmt::format("{}{}.{}", kPrefix, Escaped(bytes), Escaped(Proof(bytes)));
}

StatusOr<Caller> DashboardKeys::Check(std::string_view key, absl::Time now) const {
  if (key.size() > kMostDashboardKeyBytes || !key.starts_with(kPrefix)) return NoKey();
  key.remove_prefix(kPrefix.size());
  const size_t point = key.find('.');
  if (point == std::string_view::npos) return NoKey();
  std::string bytes, proof;
  if (!absl::WebSafeBase64Unescape(std::string(key.substr(0, point)), &bytes) ||
      !absl::WebSafeBase64Unescape(std::string(key.substr(point + 1)), &proof) ||
      !ConstantTimeEqual(proof, Proof(bytes))) {
    return NoKey();
  }
  v1::DashboardKeyContent content;
  if (!content.ParseFromString(bytes)) return NoKey();
  const absl::Time until = absl::FromUnixSeconds(content.until_unix_s());
  if (until <= now) {
    return absl::UnauthenticatedError(
        "this key has expired; `longhaul dashboard-key` prints another");
  }
  Caller owner{.member = std::nullopt, .until = until, .key_sha256 = content.key_sha256()};
  if (!content.name().empty()) {
    LH_ASSIGN_OR_RETURN(const Role role, ParseRole(content.role()));
    owner.member = Member{.name = content.name(), .role = role, .worker_id = {}};
  }
  return owner;
}

}  // namespace longhaul::coordinator
