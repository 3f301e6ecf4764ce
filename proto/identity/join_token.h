// A join token: one line of text, with which a worker or a person becomes a member (member.h).
//
//   longhaul1.ROLE.FINGERPRINT.SECRET
//
// ROLE: worker, user, admin or witness. FINGERPRINT: SHA-256 of the authority's certificate, by
// which the joining side recognizes the coordinator before it sends anything. SECRET: 24 random
// bytes; the coordinator keeps only their SHA-256. FINGERPRINT and SECRET are lower-case
// hexadecimal. See docs/design/formats.md. Pure functions, except NewJoinToken, which takes random
// bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "proto/identity/member.h"

namespace longhaul {

inline constexpr uint32_t kJoinTokenVersion = 1;
inline constexpr size_t kJoinSecretBytes = 24;

struct JoinToken {
  // The role of the new member. An admin's token also serves for a worker or a user, because an
  // admin could make such tokens anyway.
  Role role = Role::kUser;
  std::string fingerprint;  // 64 hexadecimal digits
  std::string secret;       // 48 hexadecimal digits

  friend bool operator==(const JoinToken&, const JoinToken&) = default;
};

// Makes a token with a new secret. `fingerprint` as Authority::fingerprint() (authority.h).
JoinToken NewJoinToken(Role role, std::string fingerprint);
std::string ToString(const JoinToken& token);
// True if `text` begins with "longhaul1."; the rest may be missing or wrong. A shared secret
// (base/token.h) must not begin with these characters.
bool IsJoinToken(std::string_view text);
// kInvalidArgument: not a complete join token. Messages never repeat the text, which may be secret.
StatusOr<JoinToken> ParseJoinToken(std::string_view text);
// True if a token of the role `token` lets somebody join in the role `wanted`.
bool MayJoinAs(Role token, Role wanted);

}  // namespace longhaul
