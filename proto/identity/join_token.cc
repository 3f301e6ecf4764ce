#include "proto/identity/join_token.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "base/hash.h"

namespace longhaul {
namespace {

constexpr std::string_view kPrefix = "longhaul1.";

bool IsHex(std::string_view text, size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace

JoinToken NewJoinToken(Role role, std::string fingerprint) {
  return {.role = role,
          .fingerprint = std::move(fingerprint),
          .secret = absl::BytesToHexString(RandomBytes(kJoinSecretBytes))};
}

std::string ToString(const JoinToken& token) {
  return fmt::format("{}{}.{}.{}", kPrefix, ToString(token.role), token.fingerprint, token.secret);
}

bool IsJoinToken(std::string_view text) {
  return text.starts_with(kPrefix);
}

StatusOr<JoinToken> ParseJoinToken(std::string_view text) {
  if (!IsJoinToken(text)) {
    return InvalidArgument("expected a join token, {}...", kPrefix);
  }
  const std::string rest(text.substr(kPrefix.size()));
  const std::vector<std::string> parts = absl::StrSplit(rest, absl::MaxSplits('.', 3));
  if (parts.size() != 3 || !IsSha256Hex(parts[1]) || !IsHex(parts[2], 2 * kJoinSecretBytes)) {
    return absl::InvalidArgumentError(
        "the join token is not whole: expected a role, 64 and 48 hexadecimal digits after its "
        "first word, with points between; copy its whole line");
  }
  LH_ASSIGN_OR_RETURN(const Role role, ParseRole(parts[0]));
  return JoinToken{role, parts[1], parts[2]};
}

bool MayJoinAs(Role token, Role wanted) {
  return token == wanted || token == Role::kAdmin;
}

}  // namespace longhaul
