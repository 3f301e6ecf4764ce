// A join token: what somebody needs to become a member, in one line of text.
//
//   longhaul1.ROLE.FINGERPRINT.SECRET
//
// FINGERPRINT: SHA-256 of the authority's certificate, so that whoever joins knows the coordinator
// before he tells it anything. SECRET: 24 random bytes, of which the coordinator keeps the SHA-256.
// Both are lower-case hexadecimal digits. docs/design/formats.md. Pure.
#ifndef LONGHAUL_PROTO_IDENTITY_JOIN_TOKEN_H_
#define LONGHAUL_PROTO_IDENTITY_JOIN_TOKEN_H_

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
  // What the joining member becomes. With an admin's token also worker or user: an admin could make
  // tokens for these anyway.
  Role role = Role::kUser;
  std::string fingerprint;  // 64 hexadecimal digits
  std::string secret;       // 48 hexadecimal digits

  friend bool operator==(const JoinToken&, const JoinToken&) = default;
};

// With a new secret.
JoinToken NewJoinToken(Role role, std::string fingerprint);
std::string ToString(const JoinToken& token);
// Whether a text is meant as one, whole or not. Plain tokens of before never are.
bool IsJoinToken(std::string_view text);
// kInvalidArgument; errors never repeat the text.
StatusOr<JoinToken> ParseJoinToken(std::string_view text);
bool MayJoinAs(Role token, Role wanted);

}  // namespace longhaul

#endif  // LONGHAUL_PROTO_IDENTITY_JOIN_TOKEN_H_
