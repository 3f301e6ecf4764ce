// Who takes part in an installation, and as what. Pure.
#ifndef LONGHAUL_PROTO_IDENTITY_MEMBER_H_
#define LONGHAUL_PROTO_IDENTITY_MEMBER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

enum class Role : uint8_t { kWorker, kUser, kAdmin };
std::string_view ToString(Role role);  // "worker", "user", "admin"
StatusOr<Role> ParseRole(std::string_view text);

inline constexpr size_t kMaxMemberNameBytes = 64;

struct Member {
  std::string name;  // letters, digits, '.', '_' and '-'; never given to another member again
  Role role = Role::kUser;
  std::string worker_id;  // of a worker: the id that its hello has; else empty

  friend bool operator==(const Member&, const Member&) = default;
};

// Whether a certificate may carry it. kInvalidArgument.
Status CheckMember(const Member& member);
// The nearest name that CheckMember takes: "two words" becomes "two-words".
std::string MemberNameFrom(std::string_view text);

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_IDENTITY_MEMBER_H_
