#include "proto/member/access.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/token.h"
#include "base/unique_fd.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "proto/identity/rotation.h"
#include "proto/identity/signature.h"
#include "proto/identity/trust.h"
#include "proto/member/authority_of.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul {
namespace {

constexpr absl::Duration kRenewLimit = absl::Seconds(5);
// To connect to one of several coordinators: another one may be there at once.
constexpr absl::Duration kConnectLimitOfSeveral = absl::Seconds(2);

Status NoWayIn(const AccessOptions& options) {
  return FailedPrecondition(
      "there is no certificate for the coordinator {} ({} is not there), and no join token to get "
      "one with: give --token-file FILE (the coordinator writes one into its state directory; "
      "`longhaul token create` makes others), or --insecure for a coordinator without TLS",
      absl::StrJoin(options.addresses, ","), options.credentials_file);
}

StatusOr<std::optional<JoinToken>> ReadJoinToken(const std::string& file) {
  if (file.empty()) return std::optional<JoinToken>();
  LH_ASSIGN_OR_RETURN(const std::string text, LoadToken(file));
  if (!IsJoinToken(text)) {
    return FailedPrecondition(
        "{} holds a token of the kind that is sent without encryption, and no join token; take the "
        "join token of the coordinator's state directory, or say --insecure here and there",
        file);
  }
  StatusOr<JoinToken> token = ParseJoinToken(text);
  if (!token.ok()) return Annotate(token.status(), file);
  return std::optional(*std::move(token));
}

// Held while a process joins or renews, so that two of them do not become two members.
StatusOr<UniqueFd> LockFor(const std::string& credentials_file) {
  const std::filesystem::path path(credentials_file);
  if (path.has_parent_path()) LH_RETURN_IF_ERROR(MakeDirectories(path.parent_path().string()));
  const std::string name = credentials_file + ".lock";
  UniqueFd fd(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) return FromErrno(fmt::format("cannot open {}", name), errno);
  if (::flock(fd.get(), LOCK_EX) != 0) return FromErrno(fmt::format("cannot lock {}", name), errno);
  return fd;
}

// Deadlines are how long nobody answered.
Status OfCall(const grpc::Status& status, const std::string& address) {
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return Unavailable("no answer from {}", address);
  }
  return FromGrpc(status);
}

std::string JoiningFile(const AccessOptions& options) {
  return options.credentials_file + ".joining";
}

// The key with which an attempt to join was made that has not come to its end; empty: there is
// none. `held`: of the credentials file. A key that is a member already is not for another one.
StatusOr<std::string> PendingKey(const AccessOptions& options, const Credentials& held) {
  const StatusOr<Credentials> pending = LoadCredentials(JoiningFile(options));
  if (pending.ok()) {
    const bool is_member = held.joined() && held.key_pem == pending->key_pem;
    return is_member ? std::string() : pending->key_pem;
  }
  if (!absl::IsNotFound(pending.status())) return pending.status();
  return std::string();
}

Role RoleToJoinAs(const AccessOptions& options, const JoinToken& token) {
  return options.role.value_or(token.role);
}

}  // namespace

std::shared_ptr<Access> Access::Plain(std::string address, std::string token) {
  return PlainOfSeveral({std::move(address)}, std::move(token));
}

std::shared_ptr<Access> Access::PlainOfSeveral(std::vector<std::string> addresses,
                                               std::string token) {
  AccessOptions options{.addresses = std::move(addresses)};
  options.insecure = true;
  std::shared_ptr<Access> access(new Access(std::move(options)));
  access->token_ = std::move(token);
  return access;
}

StatusOr<std::shared_ptr<Access>> Access::Open(const AccessOptions& options, absl::Duration limit) {
  if (options.insecure) {
    if (options.token_file.empty()) return PlainOfSeveral(options.addresses, "");
    LH_ASSIGN_OR_RETURN(std::string token, LoadToken(options.token_file));
    if (IsJoinToken(token)) {
      return FailedPrecondition(
          "{} holds a join token, which --insecure would send to anybody who listens; leave "
          "--insecure out",
          options.token_file);
    }
    return PlainOfSeveral(options.addresses, std::move(token));
  }
  LH_ASSIGN_OR_RETURN(const std::optional<JoinToken> token, ReadJoinToken(options.token_file));
  if (token && !MayJoinAs(token->role, RoleToJoinAs(options, *token))) {
    return FailedPrecondition(
        "{} holds a join token for the role {}, and a {} has to join here; make one "
        "with `longhaul token create --role {}`",
        options.token_file, ToString(token->role), ToString(*options.role),
        ToString(*options.role));
  }
  if (token && RoleToJoinAs(options, *token) == Role::kWorker && options.worker_id.empty()) {
    return FailedPrecondition(
        "{} holds a worker's join token, and a user has to join here; make one with "
        "`longhaul token create --role user`",
        options.token_file);
  }
  std::shared_ptr<Access> access(new Access(options));
  LH_ASSIGN_OR_RETURN(bool stored, access->LoadStored(token));
  if (!stored) {
    LH_ASSIGN_OR_RETURN(const UniqueFd lock, LockFor(options.credentials_file));
    LH_ASSIGN_OR_RETURN(stored, access->LoadStored(token));
    if (!stored && !token) return NoWayIn(options);
    if (!stored) LH_RETURN_IF_ERROR(access->Join(*token, limit));
  }
  return access;
}

// Whether there are credentials that the token does not ask to replace.
StatusOr<bool> Access::LoadStored(const std::optional<JoinToken>& token) {
  StatusOr<Credentials> stored = LoadCredentials(options_.credentials_file);
  if (absl::IsNotFound(stored.status())) return false;
  LH_RETURN_IF_ERROR(stored.status());
  const std::lock_guard lock(mutex_);
  credentials_ = *std::move(stored);
  if (!credentials_.joined()) return false;
  LH_ASSIGN_OR_RETURN(credentials_.authority_pem,
                      StillTrusted(credentials_.authority_pem, absl::Now()));
  LH_ASSIGN_OR_RETURN(certificate_, ReadMemberCertificate(credentials_.certificate_pem));
  if (token) {
    LH_ASSIGN_OR_RETURN(const bool known,
                        KnowsAuthority(credentials_.authority_pem, token->fingerprint));
    const bool fits = known && absl::Now() < certificate_->not_after &&
                      certificate_->member.role == RoleToJoinAs(options_, *token) &&
                      certificate_->member.worker_id == options_.worker_id;
    if (!fits) return false;
  }
  if (absl::Now() >= certificate_->not_after) {
    return FailedPrecondition(
        "the certificate {} of {} ended on {}; join again with a join token (--token-file)",
        options_.credentials_file, certificate_->member.name,
        absl::FormatTime("%Y-%m-%d", certificate_->not_after, absl::UTCTimeZone()));
  }
  return true;
}

Status Access::Join(const JoinToken& token, absl::Duration limit) {
  Credentials held, joining;
  {
    const std::lock_guard lock(mutex_);
    held = credentials_;
  }
  // A key that has not come to a certificate is used again: it may have been signed already.
  LH_ASSIGN_OR_RETURN(joining.key_pem, PendingKey(options_, held));
  const Status joined = AskEach([&](const std::string& address) -> Status {
    const Deadline deadline = Deadline::After(limit);
    const Deadline connected =
        alone() ? deadline : Deadline::After(std::min(limit, kConnectLimitOfSeveral));
    LH_ASSIGN_OR_RETURN(joining.authority_pem, AuthorityOf(address, token.fingerprint, connected));
    if (joining.key_pem.empty()) {
      LH_ASSIGN_OR_RETURN(joining.key_pem, MakeKey());
      // Not in the credentials file: what is there stays good until the coordinator has signed.
      LH_RETURN_IF_ERROR(StoreCredentials(
          JoiningFile(options_),
          {.key_pem = joining.key_pem, .certificate_pem = {}, .authority_pem = {}}));
    }
    v1::JoinRequest request;
    LH_ASSIGN_OR_RETURN(*request.mutable_request_pem(), MakeRequest(joining.key_pem));
    request.set_secret(token.secret);
    request.set_role(std::string(ToString(RoleToJoinAs(options_, token))));
    request.set_name(options_.name);
    request.set_worker_id(options_.worker_id);
    const auto stub = v1::MemberService::NewStub(ChannelTo(address, joining));
    grpc::ClientContext context;
    v1::JoinReply reply;
    LH_RETURN_IF_ERROR(OfCall(stub->Join(Until(&context, deadline), request, &reply), address));
    joining.certificate_pem = reply.certificate_pem();
    if (!reply.authority_pem().empty()) joining.authority_pem = reply.authority_pem();
    return absl::OkStatus();
  });
  LH_RETURN_IF_ERROR(joined);
  LH_RETURN_IF_ERROR(Keep(joining));
  std::error_code ignored;  // PendingKey passes over the key of a member.
  std::filesystem::remove(JoiningFile(options_), ignored);
  return absl::OkStatus();
}

void Access::Prepare(grpc::ClientContext* context, bool wait) const {
  AddToken(context, token_);
  context->set_wait_for_ready(wait && alone());
}

grpc::ClientContext* Access::Until(grpc::ClientContext* context, Deadline deadline) const {
  context->set_wait_for_ready(alone());
  context->set_deadline(absl::ToChronoTime(absl::Now() + deadline.Remaining()));
  return context;
}

std::shared_ptr<grpc::Channel> Access::ChannelTo(const std::string& address,
                                                 const Credentials& credentials) const {
  const absl::Duration limit = alone() ? kConnectLimit : kConnectLimitOfSeveral;
  return options_.insecure ? MakeChannel(address, limit) : MakeChannel(address, credentials, limit);
}

Access::Connection Access::Dial() const {
  const std::lock_guard lock(mutex_);
  const std::string& address = options_.addresses[at_hand_];
  return {
      .address = address, .generation = generation_, .channel = ChannelTo(address, credentials_)};
}

std::string Access::address() const {
  const std::lock_guard lock(mutex_);
  return options_.addresses[at_hand_];
}

void Access::GoOnFrom(uint64_t generation) {
  if (alone()) return;
  const std::lock_guard lock(mutex_);
  if (generation != generation_) return;
  at_hand_ = (at_hand_ + 1) % options_.addresses.size();
  ++generation_;
}

Status Access::AskEach(const std::function<Status(const std::string& address)>& ask) {
  std::vector<std::string> in_vain;
  while (in_vain.size() < count()) {
    uint64_t asked = 0;
    std::string address;
    {
      const std::lock_guard lock(mutex_);
      asked = generation_;
      address = options_.addresses[at_hand_];
    }
    const Status status = ask(address);
    if (alone() || !absl::IsUnavailable(status)) return status;
    const std::string said(Message(status));
    in_vain.push_back(absl::StrContains(said, address) ? said
                                                       : fmt::format("{}: {}", address, said));
    GoOnFrom(asked);
  }
  return absl::UnavailableError(absl::StrJoin(in_vain, "; "));
}

StatusOr<std::string> Access::SignDigests(std::string_view body) const {
  std::string key;
  {
    const std::lock_guard lock(mutex_);
    key = credentials_.key_pem;
  }
  if (key.empty()) return FailedPrecondition("without TLS a member has no key to sign with");
  return SignText(key, kSignedAsDigests, body);
}

uint64_t Access::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

void Access::NoteAuthority(const grpc::ClientContext& context) {
  if (options_.insecure) return;
  const auto& metadata = context.GetServerInitialMetadata();
  const auto found = metadata.find(kSignerKey);
  if (found == metadata.end()) return;
  const std::string_view signer(found->second.data(), found->second.size());
  const std::lock_guard lock(mutex_);
  new_authority_ = !KnowsAuthority(credentials_.authority_pem, signer).value_or(true);
}

Status Access::RenewIfDue(absl::Duration pause) {
  if (options_.insecure) return absl::OkStatus();
  LH_RETURN_IF_ERROR(DropOldAuthority());
  Credentials old;
  bool has_ended = false;
  {
    const std::lock_guard lock(mutex_);
    has_ended = absl::Now() >= certificate_->not_after;
    const bool due = new_authority_ || absl::Now() >= RenewalTime(*certificate_);
    if (!due || Now() < renew_from_) return absl::OkStatus();
    renew_from_ = Now() + pause;
    old = credentials_;
  }
  // A certificate that has ended proves nothing. It may be short, and the coordinator was away.
  if (has_ended && !options_.token_file.empty()) {
    return Annotate(JoinAgain(), "joining again, because the certificate has ended");
  }
  return Annotate(Renew(old), "renewing the certificate");
}

Status Access::JoinAgain() {
  LH_ASSIGN_OR_RETURN(const std::optional<JoinToken> token, ReadJoinToken(options_.token_file));
  if (!token) return NoWayIn(options_);
  LH_ASSIGN_OR_RETURN(const UniqueFd lock, LockFor(options_.credentials_file));
  return Join(*token, kRenewLimit);
}

// Later channels do not trust it any more.
Status Access::DropOldAuthority() {
  Credentials now;
  {
    const std::lock_guard lock(mutex_);
    now = credentials_;
  }
  LH_ASSIGN_OR_RETURN(now.authority_pem, StillTrusted(now.authority_pem, absl::Now()));
  const std::lock_guard lock(mutex_);
  if (now.authority_pem == credentials_.authority_pem) return absl::OkStatus();
  credentials_.authority_pem = std::move(now.authority_pem);
  ++generation_;
  return absl::OkStatus();
}

Status Access::Renew(const Credentials& old) {
  LH_ASSIGN_OR_RETURN(const UniqueFd lock, LockFor(options_.credentials_file));
  // With the same key: the coordinator knows its members by it.
  Credentials renewed{
      .key_pem = old.key_pem, .certificate_pem = {}, .authority_pem = old.authority_pem};
  v1::RenewRequest request;
  LH_ASSIGN_OR_RETURN(*request.mutable_request_pem(), MakeRequest(renewed.key_pem));
  v1::JoinReply reply;
  LH_RETURN_IF_ERROR(AskEach([&](const std::string& address) {
    const auto stub = v1::MemberService::NewStub(ChannelTo(address, old));
    grpc::ClientContext context;
    return OfCall(stub->Renew(Until(&context, Deadline::After(kRenewLimit)), request, &reply),
                  address);
  }));
  renewed.certificate_pem = reply.certificate_pem();
  // The coordinator that says so is trusted: TLS has checked it.
  if (!reply.authority_pem().empty()) {
    LH_ASSIGN_OR_RETURN(renewed.authority_pem,
                        TrustedAfter(old.authority_pem, reply.authority_pem()));
  }
  return Keep(renewed);
}

Status Access::Keep(const Credentials& given) {
  LH_ASSIGN_OR_RETURN(Credentials checked, ParseCredentials(ToPem(given)));
  LH_RETURN_IF_ERROR(StoreCredentials(options_.credentials_file, checked));
  const std::lock_guard lock(mutex_);
  credentials_ = std::move(checked);
  LH_ASSIGN_OR_RETURN(certificate_, ReadMemberCertificate(credentials_.certificate_pem));
  renew_from_ = {};
  new_authority_ = false;
  ++generation_;
  return absl::OkStatus();
}

}  // namespace longhaul
