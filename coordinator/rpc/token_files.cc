#include "coordinator/rpc/token_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "base/file.h"
#include "base/token.h"

namespace longhaul::coordinator {
namespace {

// The token in the file, if it is one of these authorities and this role.
StatusOr<JoinToken> TokenIn(const TokenFile& file, const Authorities& authorities) {
  LH_ASSIGN_OR_RETURN(const std::string text, LoadToken(file.path));
  if (!IsJoinToken(text)) {
    return FailedPrecondition(
        "{} holds a token of the kind that is sent without encryption. Remove it, and it will hold "
        "a join token instead; or say --insecure to go without TLS",
        file.path);
  }
  StatusOr<JoinToken> token = ParseJoinToken(text);
  if (!token.ok()) return Annotate(token.status(), file.path);
  if (token->fingerprint != authorities.present.fingerprint() &&
      !(authorities.old && token->fingerprint == authorities.old->fingerprint())) {
    return FailedPrecondition(
        "{} holds a join token of another authority than this state directory's; remove it, and it "
        "will hold one of this",
        file.path);
  }
  if (token->role == file.role) return token;
  return FailedPrecondition("{} holds a join token for the role {}, not {}; name another file",
                            file.path, ToString(token->role), ToString(file.role));
}

}  // namespace

StatusOr<std::optional<std::string>> ProvideToken(const TokenFile& file,
                                                  const Authorities& authorities, Members* members,
                                                  absl::Time now) {
  const std::string& fingerprint = authorities.Shown(now).fingerprint();
  absl::Time until = now + kLongestTokenLife;
  // The coordinator shows another authority from then on.
  if (authorities.IsRotating(now)) until = std::min(until, authorities.old_until);
  std::error_code error;
  const bool is_there = std::filesystem::exists(file.path, error);
  if (is_there) {
    LH_ASSIGN_OR_RETURN(const JoinToken token, TokenIn(file, authorities));
    LH_ASSIGN_OR_RETURN(const std::optional<absl::Time> ends, members->TokenUntil(token.secret));
    const absl::Time renew_before = now + std::min(kLongestTokenLife / 3, (until - now) / 2);
    if (token.fingerprint == fingerprint && ends && *ends >= renew_before) {
      return std::optional<std::string>();
    }
  }
  const JoinToken token = NewJoinToken(file.role, fingerprint);
  LH_RETURN_IF_ERROR(members->AddToken(token, kAnyNumber, until, now));
  const Status written =
      Annotate(WriteFileAtomic(file.path, ToString(token) + "\n", 0600), file.what);
  if (!written.ok() && is_there) {
    // A coordinator that serves goes on: `longhaul token create` makes tokens, too.
    return std::optional(
        fmt::format("{} ends soon and cannot be renewed: {}", file.path, Message(written)));
  }
  LH_RETURN_IF_ERROR(written);
  return std::optional(
      fmt::format("{} {} {}", is_there ? "renewed" : "made", file.what, file.path));
}

}  // namespace longhaul::coordinator
