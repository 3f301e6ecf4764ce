#include "coordinator/standby/follower.h"

#include <fmt/core.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "coordinator/standby/fencer.h"
#include "proto/identity/rotation.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

constexpr absl::Duration kDialAgain = absl::Seconds(1);
constexpr absl::Duration kJoinLimit = absl::Seconds(5);
constexpr absl::Duration kAskLimit = absl::Seconds(2);
constexpr absl::Duration kLook = absl::Milliseconds(200);
// How often to see whether the certificate is to be renewed, while a stream is open.
constexpr absl::Duration kRenewalLook = absl::Minutes(1);
// Below the 3 s after which the coordinator disconnects a silent standby.
constexpr absl::Duration kMostStandstill = absl::Seconds(2);
constexpr uint64_t kMostAuthorityBytes = 1 << 20;

v1::FollowerMessage HasChange(uint64_t number) {
  v1::FollowerMessage message;
  message.set_has_change(number);
  return message;
}

std::string AuthorityIn(const std::string& state_dir) {
  return ReadFile(state_dir + "/authority.pem", kMostAuthorityBytes).value_or("");
}

// Whether the coordinator to follow has taken over from this directory's.
bool HasTakenOver(const FollowerOptions& options, const LeadershipRecord& record) {
  if (record.role != LeaderRole::kCoordinator) return false;
  const StatusOr<Authorities> authorities = ParseAuthorities(AuthorityIn(options.state_dir));
  if (!authorities.ok()) return false;
  const StatusOr<uint64_t> term =
      AskTerm(options.predecessor, authorities->Trusted(absl::Now()), kAskLimit);
  return term.ok() && *term > record.term;
}

}  // namespace

std::string StandbyCredentials(const std::string& state_dir) {
  return state_dir + "/standby.pem";
}

StatusOr<std::unique_ptr<Follower>> Follower::Start(const FollowerOptions& options) {
  LH_ASSIGN_OR_RETURN(LeadershipRecord record, ReadLeadership(options.state_dir));
  LH_ASSIGN_OR_RETURN(StateCopy copy,
                      StateCopy::Open(options.state_dir, HasTakenOver(options, record)));
  std::unique_ptr<Follower> follower(new Follower(options, std::move(copy)));
  // Its copy is stale: the coordinator has gone on since.
  record.role = LeaderRole::kStandby;
  record.predecessor = options.predecessor;
  record.standby = record.successor = "";
  record.whole = false;
  LH_RETURN_IF_ERROR(WriteLeadership(options.state_dir, record));
  follower->record_ = follower->written_ = std::move(record);
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
    if (fetch_context_ != nullptr) fetch_context_->TryCancel();
  }
  changed_.notify_all();
  if (watch_.joinable()) watch_.join();
  if (thread_.joinable()) thread_.join();
}

bool Follower::due() const {
  const std::lock_guard lock(mutex_);
  return due_;
}

bool Follower::Sleep(absl::Duration duration) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoNanoseconds(duration), [this] { return closing_; });
  return !closing_;
}

Status Follower::EnsureAccess() {
  if (access_ != nullptr) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(access_,
                      Access::Open({.addresses = {options_.predecessor},
                                    .token_file = options_.token_file,
                                    .credentials_file = StandbyCredentials(options_.state_dir),
                                    .role = Role::kAdmin,
                                    .name = "standby"},
                                   kJoinLimit));
  stub_.emplace(access_);
  return absl::OkStatus();
}

Status Follower::EnsurePort(const std::string& authority_pem) {
  if (port_ != nullptr && port_authority_ == authority_pem) return absl::OkStatus();
  LH_ASSIGN_OR_RETURN(const Authorities authorities, ParseAuthorities(authority_pem));
  LH_ASSIGN_OR_RETURN(const PortSecurity security, SecurityOf(authorities, absl::Now()));
  port_.reset();  // another authority's members are unknown here
  port_authority_ = authority_pem;
  LH_ASSIGN_OR_RETURN(
      port_, WaitingPort::Open(options_.listen, security,
                               fmt::format("this is the standby of {}, which it has not taken over",
                                           options_.predecessor),
                               [this](const std::string& worker_id) {
                                 const std::lock_guard lock(mutex_);
                                 contact_.have_come[worker_id] = Now();
                               }));
  return absl::OkStatus();
}

// ---- Following ---------------------------------------------------------------------

void Follower::Loop() {
  while (true) {
    Status status = EnsureAccess();
    if (status.ok()) status = access_->RenewIfDue(absl::Minutes(1));
    if (status.ok()) status = Follow();
    // The coordinator lives, has ended the stream for a reason, and goes on without this standby.
    if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) SetWhole(false);
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      if (!absl::IsUnavailable(status) && !absl::IsCancelled(status) &&
          last_trouble_ != Message(status)) {
        LogWarning("{}: {}; dialling again", options_.predecessor,
                   status.ok() ? "closed the stream" : Message(status));
      }
      last_trouble_ = std::string(Message(status));
    }
    if (!Sleep(kDialAgain)) return;
  }
}

Status Follower::Follow() {
  grpc::ClientContext context;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || due_) return absl::CancelledError("it follows no more");
    context_ = &context;
    dialled_ = Now();
    stream_ended_ = false;
    listed_.clear();
    wanted_.clear();
    all_listed_ = false;
  }
  const auto stub = stub_->Get();
  const auto stream = stub->Follow(&context);
  v1::FollowerMessage hello;
  hello.mutable_hello()->set_address(options_.listen);
  hello.mutable_hello()->set_version(options_.version);
  Say(stream.get(), hello);
  std::thread fetcher([this, &stream] { FetchLoop(stream.get()); });
  Status trouble;
  v1::FollowedMessage message;
  bool noted = false;
  while (trouble.ok() && stream->Read(&message)) {
    if (!std::exchange(noted, true)) access_->NoteAuthority(context);
    {
      // The coordinator has spoken, so workers that came before are no witnesses of its end.
      const std::lock_guard lock(mutex_);
      contact_.heard = Now();
      contact_.have_come.clear();
    }
    trouble = Take(message, stream.get());
  }
  if (!trouble.ok()) context.TryCancel();
  {
    const std::lock_guard lock(mutex_);
    stream_ended_ = true;
    if (fetch_context_ != nullptr) fetch_context_->TryCancel();
  }
  changed_.notify_all();
  fetcher.join();
  const Status end = FromGrpc(stream->Finish());
  const std::lock_guard lock(mutex_);
  context_ = nullptr;
  if (contact_.whole && !closing_ && !std::exchange(said_gone_, true)) {
    LogWarning("the coordinator {} is not there: {}", options_.predecessor,
               end.ok() ? "it closed the stream" : Message(end));
  }
  return trouble.ok() ? end : trouble;
}

Status Follower::Take(const v1::FollowedMessage& message, Stream* stream) {
  switch (message.body_case()) {
    case v1::FollowedMessage::kBegin:
      return TakeBegin(message.begin());
    case v1::FollowedMessage::kStore:
      return copy_.Append(message.store());
    case v1::FollowedMessage::kBlob:
      return TakeBlob(message.blob());
    case v1::FollowedMessage::kListed: {
      LH_RETURN_IF_ERROR(RemoveUnlisted());
      {
        const std::lock_guard lock(mutex_);
        all_listed_ = true;
      }
      changed_.notify_all();
      return absl::OkStatus();
    }
    case v1::FollowedMessage::kChange: {
      LH_ASSIGN_OR_RETURN(const std::optional<v1::StoreChange> change,
                          joiner_.Add(message.change()));
      if (!change) return absl::OkStatus();
      // Replayed and on disk before it is confirmed: the coordinator acts on the confirmation.
      LH_RETURN_IF_ERROR(copy_.Replay(*change));
      Say(stream, HasChange(copy_.last_change()));
      return absl::OkStatus();
    }
    case v1::FollowedMessage::kLive:
      SetWhole(true);
      LogInfo("this standby has all that {} has, and takes over when that is gone",
              options_.predecessor);
      return absl::OkStatus();
    case v1::FollowedMessage::kBeat: {
      {
        const std::lock_guard lock(mutex_);
        const auto& ids = message.beat().worker_ids();
        contact_.workers = {ids.begin(), ids.end()};
      }
      Say(stream, HasChange(copy_.last_change()));
      return absl::OkStatus();
    }
    case v1::FollowedMessage::BODY_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      "a message came that this version does not know; are both of the same version?");
}

Status Follower::TakeBegin(const v1::FollowedMessage::Begin& begin) {
  {
    const std::lock_guard lock(mutex_);
    if (begin.term() < record_.term) {
      return FailedPrecondition(
          "it has term {}, and this standby's copy is of term {}: another coordinator "
          "has taken over from it",
          begin.term(), record_.term);
    }
    record_.term = begin.term();
    said_gone_ = false;
  }
  SetWhole(false);
  joiner_ = {};
  LH_RETURN_IF_ERROR(copy_.Begin(begin));
  return EnsurePort(begin.authority());
}

void Follower::SetWhole(bool whole) {
  const std::lock_guard lock(mutex_);
  contact_.whole = record_.whole = whole;
  if (record_ == written_) return;
  written_ = record_;
  if (const Status status = WriteLeadership(options_.state_dir, record_); !status.ok()) {
    LogError("{}", Message(status));
  }
}

// ---- Blobs -------------------------------------------------------------------------

Status Follower::TakeBlob(const v1::FollowedMessage::Blob& blob) {
  Blob key(blob.folder(), blob.sha256());
  if (!v1::BlobFolder_IsValid(blob.folder()) || !IsSha256Hex(blob.sha256())) {
    return absl::InvalidArgumentError("a blob came whose folder or name is none");
  }
  if (blob.removed()) {
    {
      const std::lock_guard lock(mutex_);
      listed_.erase(key);
    }
    return copy_.blobs(blob.folder()).Remove(blob.sha256());
  }
  {
    const std::lock_guard lock(mutex_);
    listed_.insert(key);
    wanted_.push_back(std::move(key));
  }
  changed_.notify_all();
  return absl::OkStatus();
}

// Removes blobs from before that the coordinator no longer has.
Status Follower::RemoveUnlisted() {
  for (const v1::BlobFolder folder : {v1::BLOB_FOLDER_DATA, v1::BLOB_FOLDER_COPIES}) {
    const BlobStore& blobs = copy_.blobs(folder);
    LH_ASSIGN_OR_RETURN(const std::vector<BlobStore::Entry> entries, blobs.List());
    for (const BlobStore::Entry& entry : entries) {
      bool listed = false;
      {
        const std::lock_guard lock(mutex_);
        listed = listed_.contains({folder, entry.sha256});
      }
      if (!listed) LH_RETURN_IF_ERROR(blobs.Remove(entry.sha256));
    }
  }
  return absl::OkStatus();
}

void Follower::FetchLoop(Stream* stream) {
  bool said_ready = false;
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait_for(lock, absl::ToChronoNanoseconds(kRenewalLook), [&] {
      return closing_ || stream_ended_ || !wanted_.empty() || (all_listed_ && !said_ready);
    });
    if (closing_ || stream_ended_) return;
    lock.unlock();
    // Not on the thread that reads: the coordinator stores the new certificate, for which it waits
    // until that thread has it, too.
    if (const Status renewed = access_->RenewIfDue(kRenewalLook); !renewed.ok()) {
      LogWarning("{}: {}", options_.predecessor, Message(renewed));
    }
    lock.lock();
    if (wanted_.empty() && (!all_listed_ || said_ready)) continue;
    v1::FollowerMessage message;
    if (wanted_.empty()) {
      said_ready = true;
      message.mutable_ready();
    } else {
      const Blob blob = wanted_.front();
      wanted_.pop_front();
      lock.unlock();
      const Status status = Fetch(blob);
      lock.lock();
      if (!status.ok() && !stream_ended_ && !closing_) {
        // The stream's end says why; it begins anew.
        LogWarning("blob {}: {}", blob.second, Message(status));
        if (context_ != nullptr) context_->TryCancel();
        return;
      }
      message.mutable_has_blob()->set_folder(blob.first);
      message.mutable_has_blob()->set_sha256(blob.second);
    }
    lock.unlock();
    const bool said = Say(stream, message);
    lock.lock();
    if (!said) return;
  }
}

Status Follower::Fetch(const Blob& blob) {
  const BlobStore& blobs = copy_.blobs(blob.first);
  if (blobs.Has(blob.second)) return absl::OkStatus();
  grpc::ClientContext context;
  {
    const std::lock_guard lock(mutex_);
    if (closing_ || stream_ended_) return absl::CancelledError("the stream has ended");
    fetch_context_ = &context;
  }
  v1::FetchBlobRequest request;
  request.set_sha256(blob.second);
  const auto stub = stub_->Get();
  const auto reader = stub->FetchCopy(&context, request);
  const Status taken = [&]() -> Status {
    std::unique_ptr<BlobUpload> upload;
    v1::BlobChunk chunk;
    while (reader->Read(&chunk)) {
      if (upload == nullptr) {
        LH_ASSIGN_OR_RETURN(upload, blobs.StartUpload(blob.second, chunk.total_bytes()));
      }
      LH_RETURN_IF_ERROR(upload->Append(chunk.data()));
    }
    return upload == nullptr ? absl::OkStatus() : upload->Finish();
  }();
  if (!taken.ok()) context.TryCancel();
  const Status end = FromGrpc(reader->Finish());
  const std::lock_guard lock(mutex_);
  fetch_context_ = nullptr;
  // It was deleted there since it was named.
  if (absl::IsNotFound(end) || !listed_.contains(blob)) return absl::OkStatus();
  // What broke off says why; a call that was cancelled here does not.
  return end.ok() || absl::IsCancelled(end) ? taken : end;
}

bool Follower::Say(Stream* stream, const v1::FollowerMessage& message) {
  const std::lock_guard lock(write_mutex_);
  return stream->Write(message);
}

// ---- Taking over -------------------------------------------------------------------

void Follower::WatchLoop() {
  MonoTime looked = Now();
  while (Sleep(kLook)) {
    bool stale = false;
    const MonoTime now = Now();
    const absl::Duration stood_still = now - std::exchange(looked, now);
    if (stood_still > kMostStandstill) {
      // The silence was its own, and the coordinator has gone on without it.
      LogWarning("this process stood still for {}; it follows {} anew",
                 absl::FormatDuration(absl::Trunc(stood_still, kLook)), options_.predecessor);
      BeginAnew();
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      // A coordinator that is silent holds no lease; nobody waits for it to say that it is gone.
      const MonoTime quiet_since = std::max(contact_.heard, dialled_);
      if (contact_.whole && now - quiet_since >= kLease && context_ != nullptr) {
        context_->TryCancel();
      }
      switch (Judge(contact_, now)) {
        case Verdict::kWait:
          break;
        case Verdict::kTakeOver:
          LogWarning("the coordinator {} has been silent for {}, and {} of its {} workers are here",
                     options_.predecessor,
                     absl::FormatDuration(absl::Trunc(now - contact_.heard, kLook)),
                     contact_.have_come.size(), contact_.workers.size());
          due_ = true;
          if (context_ != nullptr) context_->TryCancel();
          return;
        case Verdict::kStale:
          stale = true;
      }
    }
    if (!stale) continue;
    LogWarning(
        "{} is not to be heard, but its workers stayed away from here, so it lives, and this "
        "standby misses what it does; it will not take over before it has followed it again",
        options_.predecessor);
    BeginAnew();
  }
}

void Follower::BeginAnew() {
  SetWhole(false);
  const std::lock_guard lock(mutex_);
  if (context_ != nullptr) context_->TryCancel();
}

}  // namespace longhaul::coordinator
