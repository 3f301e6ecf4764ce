// The members of an installation and their roles. An installation is a coordinator and everybody
// who may connect to it: its members, who are workers and people. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace longhaul {

enum class Role : uint8_t {
  kWorker,
  kUser,
  kAdmin,
  kWitness,  // takes part when two coordinators decide which one leads (proto/witness/rules.h)
};
std::string_view ToString(Role role);  // "worker", "user", "admin", "witness"
// kInvalidArgument: not one of the four words.
StatusOr<Role> ParseRole(std::string_view text);

inline constexpr size_t kMaxMemberNameBytes = 64;

struct Member {
  std::string name;  // letters, digits, '.', '_' and '-'; no two members ever have the same name
  Role role = Role::kUser;
  std::string worker_id;  // for a worker: its WorkerId (base/ids.h); else empty

  friend bool operator==(const Member&, const Member&) = default;
};

// Checks that a certificate may carry this member. kInvalidArgument: the name or the worker id is
// wrong.
Status CheckMember(const Member& member);
// Makes a name that CheckMember accepts out of any text: "two-words" for "two words". "" gives
// "member".
std::string MemberNameFrom(std::string_view text);

}  // namespace longhaul
