#include "coordinator/standby/follower.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/watchdog.h"
#include "coordinator/standby/ask_term.h"
#include "proto/identity/rotation.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kDialAgain = absl::Seconds(1);
constexpr absl::Duration kJoinLimit = absl::Seconds(5);
constexpr absl::Duration kAskLimit = absl::Seconds(2);
// How often to see whether the certificate is to be renewed, while a stream is open.
constexpr absl::Duration kRenewalLook = absl::Minutes(1);
constexpr uint64_t kMostAuthorityBytes = 1 << 20;

std::string AuthorityIn(const std::string& state_dir) {
  return ReadFile(state_dir + "/authority.pem", kMostAuthorityBytes).value_or("");
}

// Whether another coordinator has all runs of this directory, so that a copy may replace them.
bool OtherHasRuns(const std::string& state_dir, const std::string& peer,
                  const LeadershipRecord& record) {
  if (!record.leads_alone()) return true;
  const StatusOr<Authorities> authorities = ParseAuthorities(AuthorityIn(state_dir));
  if (!authorities.ok()) return false;
  const StatusOr<uint64_t> term = AskTerm(peer, authorities->Trusted(absl::Now()), kAskLimit);
  return term.ok() && *term > record.term();
}

}  // namespace

StatusOr<std::string> CoordinatorToFollow(const std::string& state_dir, const std::string& peer,
                                          bool prefers_to_follow) {
  if (!HasLeadership(state_dir)) return prefers_to_follow ? peer : "";
  LH_ASSIGN_OR_RETURN(const LeadershipRecord record, ReadLeadership(state_dir));
  // It led, and the other one may have been elected since: the witness knows.
  if (peer.empty()) {
    const bool asks = record.role == LeaderRole::kCoordinator && !record.leads_alone();
    return asks ? record.peer : "";
  }
  return OtherHasRuns(state_dir, peer, record) ? peer : "";
}

StatusOr<std::unique_ptr<Follower>> Follower::Start(const FollowerOptions& options) {
  LH_ASSIGN_OR_RETURN(LeadershipRecord record, ReadLeadership(options.state_dir));
  LH_ASSIGN_OR_RETURN(
      StateCopy copy,
      StateCopy::Open(options.state_dir, OtherHasRuns(options.state_dir, options.peer, record)));
  std::unique_ptr<Follower> follower(new Follower(options, std::move(copy)));
  // What was alone in sync is replaced by the other coordinator's records.
  if (record.leads_alone()) {
    record.seat.in_sync.clear();
    record.role = LeaderRole::kStandby;
  }
  record.peer = options.peer;
  LH_RETURN_IF_ERROR(WriteLeadership(options.state_dir, record));
  follower->seat_ = Seat(record.seat);
  follower->record_ = std::move(record);
  follower->NoteStore(nullptr);
  const auto blobs = [raw = follower.get()](v1::BlobFolder folder) -> const BlobStore& {
    return raw->copy_.blobs(folder);
  };
  const auto trouble = [raw = follower.get()](const ListedBlob& blob, const Status& why) {
    raw->SayTrouble(blob, why);
  };
  follower->blobs_ = std::make_unique<BlobPuller>(
      blobs, [raw = follower.get()](const ListedBlob& blob) { raw->SayHas(blob); }, trouble);
  follower->giver_ = std::make_unique<BlobGiver>(blobs, trouble);
  follower->LookForDamage();
  const std::string authority = AuthorityIn(options.state_dir);
  if (!authority.empty()) LH_RETURN_IF_ERROR(follower->EnsurePort(authority));
  if (const Status status = follower->EnsureAccess();
      !status.ok() && !absl::IsUnavailable(status)) {
    return status;
  }
  follower->watch_ = std::thread([raw = follower.get()] { raw->WatchLoop(); });
  follower->thread_ = std::thread([raw = follower.get()] { raw->Loop(); });
  return follower;
}

Follower::~Follower() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    if (context_ != nullptr) context_->TryCancel();
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  if (thread_.joinable()) thread_.join();
}

std::optional<Seat> Follower::elected() const {
  const std::lock_guard lock(mutex_);
  return alone_ ? std::optional(seat_) : std::nullopt;
}

bool Follower::Sleep(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(duration), [this] { return closing_; });
  return !closing_;
}

Status Follower::EnsureAccess() {
  if (access_ != nullptr) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(access_,
                      Access::Open({.addresses = {options_.peer},
                                    .token_file = options_.token_file,
                                    .credentials_file = options_.state_dir + "/standby.pem",
                                    .role = Role::kAdmin,
                                    .name = "standby"},
                                   kJoinLimit));
  stub_.emplace(access_);
  seat_stub_.emplace(access_);
  return absl::OkStatus();
}

Status Follower::EnsurePort(const std::string& authority_pem) {
  std::unique_ptr<WaitingPort> old;
  {
    const std::lock_guard lock(mutex_);
    if (port_ != nullptr && port_authority_ == authority_pem) return absl::OkStatus();
    old = std::move(port_);
  }
  LH_ASSIGN_OR_RETURN(const Authorities authorities, ParseAuthorities(authority_pem));
  LH_ASSIGN_OR_RETURN(const PortSecurity security, SecurityOf(authorities, absl::Now()));
  old.reset();  // another authority's members are unknown here
  port_authority_ = authority_pem;
  const auto on_worker = [this](const std::string& worker_id) {
    const std::lock_guard lock(mutex_);
    have_come_[worker_id] = Now();
  };
  LH_ASSIGN_OR_RETURN(
      std::unique_ptr<WaitingPort> port,
      WaitingPort::Open(
          options_.listen, security,
          fmt::format("this is the standby of {}, which it has not taken over", options_.peer),
          on_worker,
          {.on_hello = [this](
                           const std::string& name,
                           const witness::Record& record) { return OnWitnessHello(name, record); },
           .on_answer = [this](const v1::WitnessSays::Answer& answer) { OnWitnessAnswer(answer); }},
          [this](const v1::VoteRequest& request) { return OnVote(request); }));
  const std::lock_guard lock(mutex_);
  port_ = std::move(port);
  return absl::OkStatus();
}

// ---- Following ---------------------------------------------------------------------

void Follower::Loop() {
  WatchedLoop watched("follower");
  while (true) {
    Status status = AwaitOthers([this] { return EnsureAccess(); });
    if (status.ok()) status = AwaitOthers([this] { return access_->RenewIfDue(absl::Minutes(1)); });
    watched.Turned();
    if (status.ok()) status = Follow();
    watched.Rests();
    {
      const std::lock_guard lock(mutex_);
      if (closing_ || alone_) return;
      if (!absl::IsUnavailable(status) && !absl::IsCancelled(status) &&
          last_trouble_ != Message(status)) {
        LogWarning("{}: {}; dialling again", options_.peer,
                   status.ok() ? "closed the stream" : Message(status));
      }
      last_trouble_ = std::string(Message(status));
    }
    if (MayAskOther()) AwaitOthers([this] { AskOther(); });
    if (!Sleep(kDialAgain)) return;
  }
}

Status Follower::Follow() {
  ForgetDamaged();
  grpc::ClientContext context;
  v1::FollowerMessage hello;
  hello.mutable_hello()->set_address(options_.listen);
  hello.mutable_hello()->set_version(options_.version);
  if (const std::optional<Standing> standing = copy_.standing()) {
    *hello.mutable_hello()->mutable_logged() = ToProto(standing->logged());
    *hello.mutable_hello()->mutable_applied() = ToProto(standing->applied);
  }
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || seat_.leads()) return absl::CancelledError("it follows no more");
    context_ = &context;
    stream_ended_ = false;
    hello.mutable_hello()->set_seat(seat_.record().seat);
    hello.mutable_hello()->set_term(seat_.record().term);
  }
  listed_.clear();
  said_missing_ = 0;
  const auto stub = stub_->Get();
  const auto stream = AwaitOthers([&] { return stub->Follow(&context); });
  Say(stream.get(), hello);
  {
    const std::lock_guard lock(mutex_);
    stream_ = stream.get();
  }
  blobs_->Begin(stub);
  std::thread renewer([this] { RenewLoop(); });
  Status trouble;
  v1::FollowedMessage message;
  bool noted = false;
  while (trouble.ok() && AwaitOthers([&] { return stream->Read(&message); })) {
    if (!std::exchange(noted, true)) access_->NoteAuthority(context);
    trouble = Take(message, stream.get());
  }
  if (!trouble.ok()) context.TryCancel();
  {
    const std::lock_guard lock(mutex_);
    stream_ended_ = true;
  }
  changed_.notify_all();
  AwaitOthers([&] { renewer.join(); });
  blobs_->End();
  giver_->End();
  const bool followed = [&] {
    const std::lock_guard lock(write_mutex_);  // nobody writes to it any more
    const std::lock_guard lock2(mutex_);
    stream_ = nullptr;
    return std::exchange(follows_, false);
  }();
  const Status end = FromGrpc(AwaitOthers([&] { return stream->Finish(); }));
  const std::lock_guard lock(mutex_);
  context_ = nullptr;
  dialled_ = true;
  if (followed && !closing_ && !std::exchange(said_gone_, true)) {
    LogWarning("the coordinator {} is not there: {}", options_.peer,
               end.ok() ? "it closed the stream" : Message(end));
  }
  return trouble.ok() ? end : trouble;
}

Status Follower::Take(const v1::FollowedMessage& message, Stream* stream) {
  {
    const std::lock_guard lock(mutex_);
    // A seat that leads follows nobody. What it has logged before counts.
    if (seat_.leads()) return absl::CancelledError("it follows no more");
    heard_ = Now();
    have_come_.clear();
  }
  switch (message.body_case()) {
    case v1::FollowedMessage::kBegin:
      return TakeBegin(message.begin(), stream);
    case v1::FollowedMessage::kStore:
      LH_RETURN_IF_ERROR(copy_.Append(message.store()));
      if (copy_.complete()) NoteStore(stream);
      return absl::OkStatus();
    case v1::FollowedMessage::kBlob:
      return TakeBlob(message.blob());
    case v1::FollowedMessage::kListed:
      return RemoveUnlisted();
    case v1::FollowedMessage::kChange: {
      LH_ASSIGN_OR_RETURN(const std::optional<v1::StoreChange> change,
                          joiner_.Add(message.change()));
      if (!change) return absl::OkStatus();
      return TakeChange(*change, stream);
    }
    case v1::FollowedMessage::kLive:
      LogInfo("this standby has all that {} has", options_.peer);
      return absl::OkStatus();
    case v1::FollowedMessage::kBeat:
      committed_ = std::max<uint64_t>(committed_, message.beat().committed());
      LH_RETURN_IF_ERROR(copy_.Apply(committed_));
      NoteStore(stream);
      if (message.beat().in_sync()) {
        const std::lock_guard lock(mutex_);
        seat_.OnInSync();
        CarryLocked();
      }
      SayMissing(stream);
      return absl::OkStatus();
    case v1::FollowedMessage::kHandOver:
      LogInfo("the coordinator {} lets this one lead", options_.peer);
      AwaitOthers([this] { AskOther(); });
      return absl::OkStatus();
    case v1::FollowedMessage::kWantBlob:
      if (!v1::BlobFolder_IsValid(message.want_blob().folder())) break;
      giver_->Give(stub_->Get(), {.folder = message.want_blob().folder(),
                                  .sha256 = message.want_blob().sha256()});
      return absl::OkStatus();
    case v1::FollowedMessage::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "a message came that this version does not know; are both of the same version?");
}

// On disk before it is confirmed: the leader commits on the confirmation.
Status Follower::TakeChange(const v1::StoreChange& change, Stream* stream) {
  const std::optional<Standing> standing = copy_.standing();
  // A leader commits a change of its own before it makes the next one.
  if (standing && standing->logged().term == change.term() && change.number() > 0) {
    committed_ = std::max<uint64_t>(committed_, change.number() - 1);
  }
  LH_RETURN_IF_ERROR(copy_.Log(change, committed_));
  verified_ = std::max<uint64_t>(verified_, change.number());
  NoteStore(stream);
  return absl::OkStatus();
}

Status Follower::TakeBegin(const v1::FollowedMessage::Begin& begin, Stream* stream) {
  {
    const std::lock_guard lock(mutex_);
    const uint64_t known = seat_.record().term;
    if (!seat_.BeginToFollow(begin.term(), begin.seat(), begin.gives_way())) {
      return FailedPrecondition("it has term {}, and this coordinator knows one of term {}",
                                begin.term(), known);
    }
    record_.role = LeaderRole::kStandby;
    CarryLocked();
    said_gone_ = false;
    follows_ = true;
    has_store_ = false;
  }
  joiner_ = {};
  committed_ = 0;
  verified_ = begin.has_resume_after() ? begin.resume_after() : begin.change();
  LH_RETURN_IF_ERROR(copy_.Begin(begin));
  if (copy_.complete()) NoteStore(stream);
  return EnsurePort(begin.authority());
}

void Follower::NoteStore(Stream* stream) {
  const std::optional<Standing> standing = copy_.standing();
  {
    const std::lock_guard lock(mutex_);
    has_store_ = standing.has_value();
    if (standing) seat_.SetStore(standing->applied, standing->tail);
  }
  if (stream == nullptr || !standing) return;
  // A tail of an older leader is not this leader's change, even if it has the same number.
  v1::FollowerMessage message;
  *message.mutable_logged() = ToProto(standing->applied);
  for (const History& logged : standing->tail) {
    if (logged.number <= verified_) *message.mutable_logged() = ToProto(logged);
  }
  Say(stream, message);
}

// Not on the thread that reads: the leader stores the new certificate, for which it waits until
// that thread has it, too.
void Follower::RenewLoop() {
  std::unique_lock lock(mutex_);
  while (!closing_ && !stream_ended_) {
    lock.unlock();
    if (const Status renewed = access_->RenewIfDue(kRenewalLook); !renewed.ok()) {
      LogWarning("{}: {}", options_.peer, Message(renewed));
    }
    lock.lock();
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kRenewalLook),
                      [this] { return closing_ || stream_ended_; });
  }
}

// ---- Blobs -------------------------------------------------------------------------

Status Follower::TakeBlob(const v1::FollowedMessage::Blob& blob) {
  ListedBlob key{.folder = blob.folder(), .sha256 = blob.sha256()};
  if (!v1::BlobFolder_IsValid(blob.folder()) || !IsSha256Hex(blob.sha256())) {
    return absl::InvalidArgumentError("a blob came whose folder or name is none");
  }
  if (blob.removed()) {
    listed_.erase(key);
    blobs_->Remove(key);
    return copy_.blobs(blob.folder()).Remove(blob.sha256());
  }
  blobs_->Add(key, blob.bytes());
  listed_.insert(std::move(key));
  return absl::OkStatus();
}

// Removes blobs from before that the leader no longer has.
Status Follower::RemoveUnlisted() {
  for (const v1::BlobFolder folder : {v1::BLOB_FOLDER_DATA, v1::BLOB_FOLDER_COPIES}) {
    const BlobStore& blobs = copy_.blobs(folder);
    LH_ASSIGN_OR_RETURN(const std::vector<BlobStore::Entry> entries, blobs.List());
    for (const BlobStore::Entry& entry : entries) {
      if (!listed_.contains({folder, entry.sha256})) {
        LH_RETURN_IF_ERROR(blobs.Remove(entry.sha256));
      }
    }
  }
  return absl::OkStatus();
}

void Follower::SayMissing(Stream* stream) {
  const BlobPuller::Missing missing = blobs_->missing();
  if (missing.blobs == std::exchange(said_missing_, missing.blobs)) return;
  v1::FollowerMessage message;
  message.mutable_missing()->set_blobs(missing.blobs);
  message.mutable_missing()->set_bytes(missing.bytes);
  Say(stream, message);
}

void Follower::SayHas(const ListedBlob& blob) {
  v1::FollowerMessage message;
  message.mutable_has_blob()->set_folder(blob.folder);
  message.mutable_has_blob()->set_sha256(blob.sha256);
  SayNow(message);
}

void Follower::SayTrouble(const ListedBlob& blob, const Status& why) {
  v1::FollowerMessage message;
  message.mutable_blob_trouble()->set_folder(blob.folder);
  message.mutable_blob_trouble()->set_sha256(blob.sha256);
  message.mutable_blob_trouble()->set_why(std::string(Message(why)));
  SayNow(message);
}

void Follower::SayNow(const v1::FollowerMessage& message) {
  const std::lock_guard write(write_mutex_);
  Stream* stream = nullptr;
  {
    const std::lock_guard lock(mutex_);
    stream = stream_ended_ ? nullptr : stream_;
  }
  if (stream != nullptr) stream->Write(message);
}

bool Follower::Say(Stream* stream, const v1::FollowerMessage& message) {
  const WaitsForOthers waits;
  const std::lock_guard lock(write_mutex_);
  return stream->Write(message);
}

}  // namespace longhaul::coordinator
