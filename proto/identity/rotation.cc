#include "proto/identity/rotation.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/identity/certificate.h"
#include "proto/identity/trust.h"

namespace longhaul {
namespace {

constexpr std::string_view kOldBegins = "old authority until ";
constexpr std::string_view kOnce = "once authority ";

std::string OldLine(absl::Time until) {
  return fmt::format("{}{}\n", kOldBegins,
                     absl::FormatTime(absl::RFC3339_sec, until, absl::UTCTimeZone()));
}

// What comes before the line, what comes behind, and its time; only the first where there is none.
struct Parts {
  std::string_view present, old;
  absl::Time old_until = absl::InfiniteFuture();
};

StatusOr<Parts> Cut(std::string_view pem) {
  const size_t at = pem.find(kOldBegins);
  Parts parts;
  parts.present = pem.substr(0, at);
  if (at == std::string_view::npos) return parts;
  const std::string_view rest = pem.substr(at + kOldBegins.size());
  const size_t end = rest.find('\n');
  std::string error;
  if (end == std::string_view::npos ||
      !absl::ParseTime(absl::RFC3339_full, std::string(rest.substr(0, end)), &parts.old_until,
                       &error)) {
    return InvalidArgument("expected the time of the old authority's end after '{}'{}{}",
                           kOldBegins, error.empty() ? "" : ": ", error);
  }
  parts.old = rest.substr(end + 1);
  return parts;
}

// Fingerprints of all certificates, then those of the lines about authorities that were trusted
// once.
StatusOr<std::vector<std::string>> FingerprintsIn(std::string_view pem) {
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> certificates, CertificatesIn(pem));
  std::vector<std::string> fingerprints;
  for (const std::string& certificate : certificates) {
    LH_ASSIGN_OR_RETURN(fingerprints.emplace_back(), Fingerprint(certificate));
  }
  for (size_t at = pem.find(kOnce); at != std::string_view::npos; at = pem.find(kOnce, at + 1)) {
    std::string fingerprint(pem.substr(at + kOnce.size(), 64));
    if (IsSha256Hex(fingerprint)) fingerprints.push_back(std::move(fingerprint));
  }
  return fingerprints;
}

std::string FileIn(const std::string& state_dir) {
  return state_dir + "/authority.pem";
}

}  // namespace

std::string Authorities::Trusted(absl::Time now) const {
  if (!IsRotating(now)) return present.certificate_pem();
  return present.certificate_pem() + OldLine(old_until) + old->certificate_pem();
}

StatusOr<std::string> StillTrusted(std::string_view trusted, absl::Time now) {
  LH_ASSIGN_OR_RETURN(const Parts parts, Cut(trusted));
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> present, CertificatesIn(parts.present));
  std::string still = absl::StrJoin(present, "");
  if (!parts.old.empty() && now < parts.old_until) {
    LH_ASSIGN_OR_RETURN(const std::vector<std::string> old, CertificatesIn(parts.old));
    still += OldLine(parts.old_until) + absl::StrJoin(old, "");
  }
  return TrustedAfter(trusted, still);
}

StatusOr<std::string> TrustedAfter(std::string_view before, std::string_view given) {
  constexpr size_t kMostOnce = 8;
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> was, FingerprintsIn(before));
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> is, FingerprintsIn(given));
  std::string after(given);
  size_t lines = 0;
  for (const std::string& fingerprint : was) {
    if (std::ranges::find(is, fingerprint) != is.end() || ++lines > kMostOnce) continue;
    after += fmt::format("{}{}\n", kOnce, fingerprint);
  }
  return after;
}

StatusOr<bool> KnowsAuthority(std::string_view trusted, std::string_view fingerprint) {
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> known, FingerprintsIn(trusted));
  return std::ranges::find(known, fingerprint) != known.end();
}

StatusOr<ServerIdentity> Authorities::MakeServerIdentity(absl::Time now) const {
  LH_ASSIGN_OR_RETURN(ServerIdentity identity, Shown(now).MakeServerIdentity(now));
  identity.authority_pem = Trusted(now);
  return identity;
}

std::string ToPem(const Authorities& authorities) {
  std::string pem = authorities.present.ToPem();
  if (!authorities.old) return pem;
  return pem + OldLine(authorities.old_until) + authorities.old->ToPem();
}

StatusOr<Authorities> ParseAuthorities(std::string_view pem) {
  LH_ASSIGN_OR_RETURN(const Parts parts, Cut(pem));
  LH_ASSIGN_OR_RETURN(Authority present, Authority::FromPem(parts.present));
  Authorities authorities{.present = std::move(present), .old = std::nullopt, .old_until = {}};
  if (parts.old_until == absl::InfiniteFuture()) return authorities;
  LH_ASSIGN_OR_RETURN(authorities.old, Authority::FromPem(parts.old));
  authorities.old_until = parts.old_until;
  return authorities;
}

StatusOr<Authorities> Rotate(const Authorities& before, absl::Time now, absl::Time old_until) {
  if (before.IsRotating(now)) {
    return FailedPrecondition(
        "the authority was rotated already, and the one before counts until {}; rotate again after "
        "that",
        absl::FormatTime(absl::RFC3339_sec, before.old_until, absl::UTCTimeZone()));
  }
  LH_ASSIGN_OR_RETURN(Authority present, Authority::Make(now));
  Authorities after{.present = std::move(present), .old = std::nullopt, .old_until = {}};
  if (old_until > now) {
    after.old = before.present;
    after.old_until = old_until;
  }
  return after;
}

StatusOr<Authorities> LoadOrMakeAuthorities(const std::string& state_dir, absl::Time now,
                                            bool* made) {
  const std::string path = FileIn(state_dir);
  *made = ::access(path.c_str(), F_OK) != 0;
  if (*made) {
    LH_ASSIGN_OR_RETURN(Authority present, Authority::Make(now));
    Authorities authorities{.present = std::move(present), .old = std::nullopt, .old_until = {}};
    LH_RETURN_IF_ERROR(StoreAuthorities(state_dir, authorities));
    return authorities;
  }
  StatusOr<Authorities> authorities = [&]() -> StatusOr<Authorities> {
    LH_ASSIGN_OR_RETURN(const std::string pem, ReadFile(path, kMaxPemBytes));
    return ParseAuthorities(pem);
  }();
  if (authorities.ok()) return authorities;
  return FailedPrecondition(
      "{}: {}; put a copy of it back. Without it every member has to join again: move it away, and "
      "a new authority is made",
      path, Message(authorities.status()));
}

Status StoreAuthorities(const std::string& state_dir, const Authorities& authorities) {
  return WriteFileAtomic(FileIn(state_dir), ToPem(authorities), 0600);
}

}  // namespace longhaul
