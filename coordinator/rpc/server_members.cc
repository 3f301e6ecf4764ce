// The authority of a coordinator, its members and its join tokens: while it serves, and for the
// commands that change them while none serves.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/token.h"
#include "coordinator/rpc/server_parts.h"
#include "coordinator/rpc/token_files.h"

namespace longhaul::coordinator {
namespace {

// Changes that only one of two coordinators in sync has are lost when the other one leads.
Status CheckAlone(const std::string& state_dir) {
  LH_ASSIGN_OR_RETURN(const LeadershipRecord record, ReadLeadership(state_dir));
  if (record.leads_alone()) return absl::OkStatus();
  return FailedPrecondition(
      "{} is not the state directory of a coordinator that leads alone, and what is changed here "
      "would be lost when the other one leads; make the change where the coordinator leads, after "
      "the other one was stopped for some seconds",
      state_dir);
}

std::vector<TokenFile> TokenFiles(const ServerOptions& options) {
  std::vector<TokenFile> files = {
      {.path = options.token_file.empty() ? options.state_dir + "/token" : options.token_file,
       .role = Role::kAdmin,
       .what = "the join token for admins"}};
  if (!options.worker_token_file.empty()) {
    files.push_back({.path = options.worker_token_file,
                     .role = Role::kWorker,
                     .what = "the join token for workers"});
  }
  return files;
}

// How often members that ended are forgotten and token files are looked at.
constexpr absl::Duration kUpkeepInterval = absl::Hours(1);
}  // namespace

// The authority, its members, and a way to become the first of them.
StatusOr<std::vector<std::string>> CoordinatorServer::Impl::OpenMembers(
    const ServerOptions& options) {
  std::vector<std::string> made;
  bool new_authority = false;
  LH_ASSIGN_OR_RETURN(authorities,
                      LoadOrMakeAuthorities(options.state_dir, absl::Now(), &new_authority));
  LH_ASSIGN_OR_RETURN(members, Members::Open(options.state_dir, &store->journal()));
  if (new_authority) {
    made.push_back(fmt::format("made the certificate authority {}/authority.pem, fingerprint {}",
                               options.state_dir, authorities->present.fingerprint()));
  }
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> kept, KeepUp(options));
  made.insert(made.end(), kept.begin(), kept.end());
  return made;
}

// Forgets members, and renews join tokens in files. Returns a sentence for each thing done.
StatusOr<std::vector<std::string>> CoordinatorServer::Impl::KeepUp(const ServerOptions& options) {
  const absl::Time now = absl::Now();
  std::vector<std::string> done;
  LH_ASSIGN_OR_RETURN(const size_t forgotten, members->Forget(now - options.members_kept));
  if (forgotten > 0) {
    done.push_back(fmt::format("{} members that ended more than {} ago are listed no longer",
                               forgotten, absl::FormatDuration(options.members_kept)));
  }
  for (const TokenFile& file : TokenFiles(options)) {
    LH_ASSIGN_OR_RETURN(const std::optional<std::string> provided,
                        ProvideToken(file, *authorities, members.get(), now));
    if (provided) done.push_back(*provided);
  }
  return done;
}

void CoordinatorServer::Impl::KeepUpLater(const ServerOptions& options) {
  absl::Duration wait = kUpkeepInterval;
  const absl::Time now = absl::Now();
  // Join tokens change with the authority that the port shows.
  if (authorities->IsRotating(now)) wait = std::min(wait, authorities->old_until - now);
  const auto keep_up = [this, options] {
    const StatusOr<std::vector<std::string>> done = KeepUp(options);
    if (!done.ok()) LogWarning("{}", Message(done.status()));
    if (done.ok()) {
      for (const std::string& sentence : *done) LogInfo("{}", sentence);
    }
    KeepUpLater(options);
  };
  // Not on the loop: changes of members wait for the disk and for the other coordinator.
  shell->CallAfter(wait, [this, keep_up] { shell->submit_threads().Add("upkeep", keep_up); });
}

StatusOr<std::vector<std::string>> InitState(const ServerOptions& options) {
  CoordinatorServer::Impl state;
  LH_RETURN_IF_ERROR(state.OpenStore(options));
  LH_RETURN_IF_ERROR(CheckAlone(options.state_dir));
  return state.OpenMembers(options);
}

StatusOr<std::vector<std::string>> RotateAuthority(const ServerOptions& options,
                                                   absl::Time old_until) {
  CoordinatorServer::Impl state;
  LH_RETURN_IF_ERROR(state.OpenStore(options));
  if (!std::filesystem::exists(options.state_dir + "/authority.pem")) {
    return FailedPrecondition("{} has no authority to rotate: `init` makes one", options.state_dir);
  }
  LH_RETURN_IF_ERROR(CheckAlone(options.state_dir));
  LH_ASSIGN_OR_RETURN(state.audit, Audit::Open(options.state_dir, &state.store->journal()));
  const absl::Time now = absl::Now();
  bool made = false;
  LH_ASSIGN_OR_RETURN(const Authorities before,
                      LoadOrMakeAuthorities(options.state_dir, now, &made));
  LH_ASSIGN_OR_RETURN(const Authorities after, Rotate(before, now, old_until));
  // First what ends: whoever reads the new authority must not count certificates of the old one.
  LH_ASSIGN_OR_RETURN(state.members, Members::Open(options.state_dir, &state.store->journal()));
  LH_RETURN_IF_ERROR(state.members->EndAllBy(std::max(now, old_until)));
  LH_RETURN_IF_ERROR(StoreAuthorities(options.state_dir, after));
  for (const TokenFile& file : TokenFiles(options)) {
    // Nobody takes a token of an authority that is forgotten for one of the new one.
    const StatusOr<std::string> text = ReadFile(file.path, kMaxTokenBytes);
    if (!after.old && text.ok() && IsJoinToken(*text)) std::filesystem::remove(file.path);
    LH_RETURN_IF_ERROR(ProvideToken(file, after, state.members.get(), now).status());
  }
  v1::AuditEntry entry;
  entry.set_action("rotate-authority");
  entry.set_object(after.present.fingerprint());
  entry.set_outcome("ok");
  state.audit->Record(std::move(entry));
  std::vector<std::string> said = {
      fmt::format("made a new authority, fingerprint {}", after.present.fingerprint())};
  said.push_back(
      after.old
          ? fmt::format("the one before counts until {}; members that connect until then learn the "
                        "new one, others have to join again after that",
                        absl::FormatTime(absl::RFC3339_sec, old_until, absl::UTCTimeZone()))
          : "the one before counts no longer: all members have to join again, with new tokens");
  said.push_back("start the coordinator; whoever joins later needs a token of then");
  return said;
}

}  // namespace longhaul::coordinator
