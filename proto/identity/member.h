// The members of an installation and their roles. Pure.
#pragma once

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
  std::string name;  // letters, digits, '.', '_' and '-'; never given to a second member
  Role role = Role::kUser;
  std::string worker_id;  // for a worker: the id in its hello; else empty

  friend bool operator==(const Member&, const Member&) = default;
};

// Checks that a certificate may carry this member. kInvalidArgument: the name or the worker id is
// wrong.
Status CheckMember(const Member& member);
// Makes a name that CheckMember accepts out of any text: "two-words" for "two words".
std::string MemberNameFrom(std::string_view text);

}  // namespace longhaul
