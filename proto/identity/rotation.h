// The authorities of an installation while its authority's key is rotated: the present one, and the
// one before until its end. Both keys are in <state_dir>/authority.pem, so a backup and a standby
// have them, too.
//
//   key and certificate of the present authority
//   old authority until 2026-12-31T00:00:00+00:00
//   key and certificate of the old authority
//
// Until the end of the old one, the coordinator shows a certificate of the old authority, which all
// members know, accepts members of both, and signs members' certificates with the present one.
// Members learn the present one when they renew (proto/member/access.h). From the end on, only the
// present one counts. Pure, except LoadOrMakeAuthorities; immutable, so any thread may use it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "base/status.h"
#include "proto/identity/authority.h"

namespace longhaul {

struct Authorities {
  Authority present;
  std::optional<Authority> old;
  absl::Time old_until;  // only with `old`

  // Returns whether the old authority still counts.
  bool IsRotating(absl::Time now) const { return old.has_value() && now < old_until; }
  // Returns the authority that signs the coordinator's own certificate, and whose fingerprint join
  // tokens have.
  const Authority& Shown(absl::Time now) const { return IsRotating(now) ? *old : present; }
  // Returns the certificates that count, as members keep them (StillTrusted): the present one, then
  // the line and the old one.
  std::string Trusted(absl::Time now) const;
  // Makes the coordinator's identity with a certificate of Shown(now), valid for 10 years.
  StatusOr<ServerIdentity> MakeServerIdentity(absl::Time now) const;
};

// Returns those of a member's trusted certificates that count at `now`: without the old one, once
// its time is over. Else an old key that was stolen would pass for the coordinator as long as the
// member keeps its certificate. kInvalidArgument: not a result of Trusted, nor certificates alone.
StatusOr<std::string> StillTrusted(std::string_view trusted, absl::Time now);

std::string ToPem(const Authorities& authorities);
// kInvalidArgument: the text is damaged, or is not an authority's.
StatusOr<Authorities> ParseAuthorities(std::string_view pem);
// Returns a new authority, and the present one of `before` as the old one until `old_until`; it is
// forgotten at once if `old_until` is not after `now`. kFailedPrecondition: another rotation is
// under way.
StatusOr<Authorities> Rotate(const Authorities& before, absl::Time now, absl::Time old_until);

// Reads <state_dir>/authority.pem (mode 0600). If there is no such file, makes an authority, writes
// the file and sets `*made` to true, else to false. kFailedPrecondition: the file cannot be read or
// is damaged. Errors of writing: by errno.
StatusOr<Authorities> LoadOrMakeAuthorities(const std::string& state_dir, absl::Time now,
                                            bool* made);
Status StoreAuthorities(const std::string& state_dir, const Authorities& authorities);

}  // namespace longhaul
