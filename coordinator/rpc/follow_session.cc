#include "coordinator/rpc/follow_session.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/address.h"
#include "base/file.h"
#include "base/log.h"
#include "coordinator/store/backup.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"

namespace longhaul::coordinator {
namespace {

constexpr uint64_t kMostSecretBytes = 1 << 20;

// Empty where there is none.
StatusOr<std::string> ReadSecret(const std::string& path) {
  StatusOr<std::string> secret = ReadFile(path, kMostSecretBytes);
  if (absl::IsNotFound(secret.status())) return std::string();
  return secret;
}

// Lets the coordinator serve unasked once its standby is too stale to take over. Workers that are
// connected here show that they did not go to the standby, which could not take over without most
// of them. Without workers the standby needs no witnesses, so it is never stale for that reason.
void NoteStaleLater(const Followed& followed, std::set<std::string> workers) {
  if (workers.empty()) return;
  Shell* const shell = followed.shell;
  shell->CallAfter(followed.standby_is_stale, [followed, workers = std::move(workers)] {
    // Another session may have followed since, and has a timer of its own.
    if (followed.leadership->standby_away() < followed.standby_is_stale) return;
    size_t here = 0;
    for (const v1::WorkerStatus& worker :
         followed.shell->Read([&](const Views& views) { return views.Workers(Now()); })) {
      here += worker.connected() && workers.contains(worker.worker_id()) ? 1 : 0;
    }
    if (2 * here < workers.size()) {
      NoteStaleLater(followed, workers);
      return;
    }
    LogWarning("the standby has been away for {}, and takes over no more",
               absl::FormatDuration(followed.standby_is_stale));
    followed.leadership->NoteStandbyStale();
  });
}

v1::FollowedMessage BlobMessage(v1::BlobFolder folder, const std::string& sha256) {
  v1::FollowedMessage message;
  message.mutable_blob()->set_folder(folder);
  message.mutable_blob()->set_sha256(sha256);
  return message;
}

}  // namespace

// Hears of one folder's blobs for the session.
class FollowSession::Blobs : public BlobFollower {
 public:
  Blobs(v1::BlobFolder folder, std::weak_ptr<FollowSession> session)
      : folder_(folder), session_(std::move(session)) {}
  void Added(const std::string& sha256, uint64_t bytes) override {
    if (const auto session = session_.lock()) session->AddBlob(folder_, sha256, bytes);
  }
  void Removed(const std::string& sha256) override {
    const auto session = session_.lock();
    if (session == nullptr) return;
    v1::FollowedMessage message = BlobMessage(folder_, sha256);
    message.mutable_blob()->set_removed(true);
    const std::lock_guard lock(session->mutex_);
    session->sent_blobs_.erase({folder_, sha256});
    session->changed_.notify_all();
    session->PushLocked(std::move(message));
  }

 private:
  const v1::BlobFolder folder_;
  const std::weak_ptr<FollowSession> session_;
};

void FollowSession::Start(const Followed& followed, FollowCall* call) {
  // Not make_shared: the constructor is private.
  std::shared_ptr<FollowSession> session(new FollowSession(followed, call));
  followed.shell->notifier().Add(session);
  session->self_ = session;
  call->Begin(session.get());
  call->StartRead(&session->incoming_);
  session->Beat();
}

// ---- Reading -----------------------------------------------------------------------

void FollowSession::OnReadDone(bool ok) {
  if (!ok) {
    End(absl::CancelledError("it has closed the stream, or its connection is gone"));
    return;
  }
  const std::lock_guard lock(mutex_);
  if (end_) return;
  heard_ = Now();
  TakeLocked();
  if (end_) return;
  incoming_.Clear();
  call_->StartRead(&incoming_);
}

void FollowSession::TakeLocked() {
  switch (incoming_.body_case()) {
    case v1::FollowerMessage::kHello:
      if (std::exchange(greeted_, true)) break;
      address_ = ReachedAt(incoming_.hello().address(), PeerHost(call_->context()));
      if (incoming_.hello().version() != followed_.version) {
        EndLocked(FailedPrecondition(
            "a standby has to be of the coordinator's version, which is {}; this one has {}",
            followed_.version, incoming_.hello().version()));
        return;
      }
      // Begin copies the store, which takes long: not on the thread that moves messages.
      followed_.shell->upload_threads().Add(
          fmt::format("standby {}", static_cast<const void*>(this)),
          [session = shared_from_this()] {
            if (const Status status = session->Begin(); !status.ok()) session->End(status);
            // The session may have ended meanwhile, and its Unfollow may have come before Follow.
            const std::lock_guard lock(session->mutex_);
            if (session->end_) session->followed_.store->journal().Unfollow(session.get());
          });
      return;
    case v1::FollowerMessage::kHasChange:
      has_change_ = std::max<uint64_t>(has_change_, incoming_.has_change());
      changed_.notify_all();
      return;
    case v1::FollowerMessage::kHasBlob:
      sent_blobs_.erase({incoming_.has_blob().folder(), incoming_.has_blob().sha256()});
      changed_.notify_all();
      return;
    case v1::FollowerMessage::kReady: {
      if (!begun_ || std::exchange(live_, true)) break;
      LogInfo("the standby {} has all that this coordinator has", address_);
      followed_.leadership->NoteStandby(address_);
      // It may take over from now on, for which it must know the workers.
      v1::FollowedMessage workers, live;
      workers.mutable_beat()->mutable_worker_ids()->Add(workers_.begin(), workers_.end());
      PushLocked(std::move(workers));
      live.mutable_live();
      PushLocked(std::move(live));
      return;
    }
    case v1::FollowerMessage::BODY_NOT_SET:
      break;
  }
  EndLocked(absl::InvalidArgumentError("a standby said something that has no place here"));
}

Status FollowSession::Begin() {
  std::optional<StoreCopy> copy;
  v1::FollowedMessage message;
  v1::FollowedMessage::Begin& begin = *message.mutable_begin();
  // The copy begins inside Follow, while no transaction runs, so the first change sent follows it
  // without a gap.
  LH_RETURN_IF_ERROR(
      followed_.store->journal().Follow(shared_from_this(), [&](uint64_t number) -> Status {
        begin.set_change(number);
        LH_ASSIGN_OR_RETURN(copy, StoreCopy::Begin(followed_.state_dir + "/store.db"));
        return absl::OkStatus();
      }));
  const std::string path = followed_.state_dir + "/store-for-standby.db";
  ::unlink(path.c_str());
  LH_RETURN_IF_ERROR(copy->WriteTo(path).status());
  copy.reset();
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FromErrno(fmt::format("cannot open {}", path), errno);
  ::unlink(path.c_str());  // it lives as long as it is open
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return FromErrno(fmt::format("cannot stat {}", path), errno);
  begin.set_term(followed_.leadership->term());
  begin.set_version(followed_.version);
  begin.set_store_bytes(static_cast<uint64_t>(info.st_size));
  LH_ASSIGN_OR_RETURN(*begin.mutable_authority(),
                      ReadSecret(followed_.state_dir + "/authority.pem"));
  LH_ASSIGN_OR_RETURN(*begin.mutable_relay_secret(),
                      ReadSecret(followed_.state_dir + "/relay-secret"));
  LH_RETURN_IF_ERROR(ListBlobs());
  const std::lock_guard lock(mutex_);
  begun_ = true;
  begin_ = std::move(message);
  copy_ = std::move(fd);
  WriteNextLocked();
  return absl::OkStatus();
}

// Listed after the store was copied, so every blob that its runs name is in the list. Blobs that
// come or go meanwhile are reported as well.
Status FollowSession::ListBlobs() {
  data_ = std::make_shared<Blobs>(v1::BLOB_FOLDER_DATA, weak_from_this());
  copies_ = std::make_shared<Blobs>(v1::BLOB_FOLDER_COPIES, weak_from_this());
  // Before List, so that no blob falls between the two.
  followed_.blobs->SetFollower(data_);
  followed_.copies->SetFollower(copies_);
  for (const auto& [folder, blobs] : {std::pair(v1::BLOB_FOLDER_DATA, followed_.blobs),
                                      {v1::BLOB_FOLDER_COPIES, followed_.copies}}) {
    LH_ASSIGN_OR_RETURN(const std::vector<BlobStore::Entry> entries, blobs->List());
    const std::lock_guard lock(mutex_);
    for (const BlobStore::Entry& entry : entries) {
      v1::FollowedMessage message = BlobMessage(folder, entry.sha256);
      message.mutable_blob()->set_bytes(entry.bytes);
      PushLocked(std::move(message));
    }
  }
  v1::FollowedMessage listed;
  listed.mutable_listed();
  const std::lock_guard lock(mutex_);
  PushLocked(std::move(listed));
  return absl::OkStatus();
}

// ---- What happens ------------------------------------------------------------------

void FollowSession::Changed(v1::StoreChange change) {
  const std::vector<v1::StoreChangePiece> pieces = CutChange(change);
  const std::lock_guard lock(mutex_);
  for (const v1::StoreChangePiece& piece : pieces) {
    v1::FollowedMessage message;
    *message.mutable_change() = piece;
    PushLocked(std::move(message));
  }
}

void FollowSession::Await(uint64_t number) {
  std::unique_lock lock(mutex_);
  const bool known = changed_.wait_until(lock, (Now() + kPatience).ToChrono(), [&] {
    return !live_ || end_.has_value() || has_change_ >= number;
  });
  if (known) return;
  EndLocked(
      DeadlineExceeded("the standby had a change for {} and did not say that it has stored it",
                       absl::FormatDuration(kPatience)));
}

void FollowSession::AddBlob(v1::BlobFolder folder, const std::string& sha256, uint64_t bytes) {
  v1::FollowedMessage message = BlobMessage(folder, sha256);
  message.mutable_blob()->set_bytes(bytes);
  std::unique_lock lock(mutex_);
  sent_blobs_.insert({folder, sha256});
  PushLocked(std::move(message));
  // Without a limit of its own: Beat ends the session of a silent standby.
  changed_.wait(lock, [&] {
    return !live_ || end_.has_value() || !sent_blobs_.contains({folder, sha256});
  });
}

v1::FollowedMessage FollowSession::WorkersNow() const {
  v1::FollowedMessage message;
  v1::FollowedMessage::Beat& beat = *message.mutable_beat();
  for (const v1::WorkerStatus& worker :
       followed_.shell->Read([&](const Views& views) { return views.Workers(Now()); })) {
    if (worker.connected()) beat.add_worker_ids(worker.worker_id());
  }
  return message;
}

void FollowSession::Beat() {
  v1::FollowedMessage message = WorkersNow();
  const std::lock_guard lock(mutex_);
  if (end_) return;
  if (begun_ && Now() - heard_ > kPatience) {
    EndLocked(
        DeadlineExceeded("the standby has said nothing for {}", absl::FormatDuration(kPatience)));
    return;
  }
  workers_ = {message.beat().worker_ids().begin(), message.beat().worker_ids().end()};
  if (begun_) PushLocked(std::move(message));
  followed_.shell->CallAfter(kBeat, [weak = weak_from_this()] {
    if (const auto session = weak.lock()) session->Beat();
  });
}

void FollowSession::OnShutdown() {
  End(absl::UnavailableError("the coordinator is shutting down"));
}

// ---- Writing -----------------------------------------------------------------------

void FollowSession::PushLocked(v1::FollowedMessage message) {
  if (end_) return;
  outgoing_bytes_ += message.ByteSizeLong();
  if (outgoing_bytes_ > kMaxOutgoingBytes) {
    EndLocked(ResourceExhausted("{} MiB wait to be sent to the standby; it does not keep up",
                                kMaxOutgoingBytes >> 20));
    return;
  }
  outgoing_.push_back(std::move(message));
  WriteNextLocked();
}

StatusOr<v1::FollowedMessage> FollowSession::NextPiece() {
  v1::FollowedMessage message;
  std::string& bytes = *message.mutable_store();
  bytes.resize(kChunkBytes);
  ssize_t n = 0;
  do {
    n = ::read(copy_.get(), bytes.data(), bytes.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0) return FromErrno("cannot read the copy of the store", errno);
  bytes.resize(static_cast<size_t>(n));
  return message;
}

void FollowSession::WriteNextLocked() {
  if (writing_ || end_ || !begun_) return;
  if (begin_) {
    writing_ = std::exchange(begin_, std::nullopt);
  } else if (copy_) {
    StatusOr<v1::FollowedMessage> piece = NextPiece();
    if (!piece.ok()) {
      EndLocked(piece.status());
      return;
    }
    if (piece->store().empty()) {
      copy_ = UniqueFd();
      WriteNextLocked();
      return;
    }
    writing_ = *std::move(piece);
  } else if (!outgoing_.empty()) {
    writing_ = std::move(outgoing_.front());
    outgoing_.pop_front();
    outgoing_bytes_ -= writing_->ByteSizeLong();
  } else {
    return;
  }
  call_->StartWrite(*writing_);
}

void FollowSession::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_.reset();
  if (!live_) heard_ = Now();  // it reads the copy, and has nothing to say
  if (end_) {
    // EndLocked left Finish to this call, as gRPC must not finish during a write.
    if (!std::exchange(finished_, true)) call_->Finish(*end_);
    return;
  }
  if (!ok) {
    EndLocked(absl::OkStatus());
    return;
  }
  WriteNextLocked();
}

// ---- The end -----------------------------------------------------------------------

void FollowSession::End(const Status& status) {
  const std::lock_guard lock(mutex_);
  EndLocked(status);
}

void FollowSession::EndLocked(const Status& status) {
  if (end_) return;
  end_ = status;
  changed_.notify_all();
  if (live_) {
    followed_.leadership->NoteStandbyGone();
    NoteStaleLater(followed_, workers_);
  }
  if (greeted_) {
    LogWarning("the standby {} follows no more{}{}", address_, status.ok() ? "" : ": ",
               Message(status));
  }
  if (writing_) {
    // Finish must wait for the write, and the standby may never read it: cancelling ends both.
    call_->context().TryCancel();
    return;
  }
  finished_ = true;
  call_->Finish(status);
}

void FollowSession::OnDone() {
  followed_.store->journal().Unfollow(this);
  self_.reset();  // Last: this may be the end of `this`.
}

}  // namespace longhaul::coordinator
