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
#include "coordinator/store/sqlite.h"
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
  void Damaged(const std::string& sha256) override {
    const auto session = session_.lock();
    if (session == nullptr) return;
    v1::FollowedMessage message;
    message.mutable_want_blob()->set_folder(folder_);
    message.mutable_want_blob()->set_sha256(sha256);
    const std::lock_guard lock(session->mutex_);
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
  TellLeadership();
  const std::lock_guard lock(mutex_);
  if (end_) return;
  heard_ = Now();
  TakeLocked();
  if (end_) return;
  incoming_.Clear();
  call_->StartRead(&incoming_);
}

// Without the lock: leadership holds its own lock while it calls this object.
void FollowSession::TellLeadership() {
  if (incoming_.has_missing()) {
    followed_.leadership->Misses(this, incoming_.missing().blobs(), incoming_.missing().bytes());
  }
  if (!incoming_.has_logged()) return;
  const History logged = FromProto(incoming_.logged());
  std::string seat, address;
  bool has_all = false;
  {
    const std::lock_guard lock(mutex_);
    if (end_ || !begun_) return;
    has_all = !live_ && logged.number >= has_from_;
    seat = seat_;
    address = address_;
  }
  followed_.leadership->Has(this, logged);
  if (!has_all) return;
  followed_.leadership->HasAll(this, seat, address);
  v1::FollowedMessage live;
  live.mutable_live();
  const std::lock_guard lock(mutex_);
  live_ = true;
  PushLocked(std::move(live));
}

void FollowSession::TakeLocked() {
  switch (incoming_.body_case()) {
    case v1::FollowerMessage::kHello:
      if (std::exchange(greeted_, true)) break;
      address_ = ReachedAt(incoming_.hello().address(), PeerHost(call_->context()));
      seat_ = incoming_.hello().seat();
      knows_term_ = incoming_.hello().term();
      if (incoming_.hello().has_applied()) {
        stands_ = Standing{.applied = FromProto(incoming_.hello().applied())};
        const History newest = FromProto(incoming_.hello().logged());
        if (newest != stands_->applied) stands_->tail = {newest};
      }
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
            // The session may have ended meanwhile, and its Gone may have come before Follow.
            const bool ended = [&] {
              const std::lock_guard lock(session->mutex_);
              return session->end_.has_value();
            }();
            if (ended) session->followed_.leadership->Gone(session.get());
          });
      return;
    case v1::FollowerMessage::kLogged:
      return;  // TellLeadership
    case v1::FollowerMessage::kHasBlob:
      sent_blobs_.erase({incoming_.has_blob().folder(), incoming_.has_blob().sha256()});
      changed_.notify_all();
      return;
    case v1::FollowerMessage::kBlobTrouble:
      CheckBlob(incoming_.blob_trouble());
      return;
    case v1::FollowerMessage::kMissing:
      return;  // TellLeadership
    case v1::FollowerMessage::BODY_NOT_SET:
      break;
  }
  EndLocked(absl::InvalidArgumentError("a standby said something that has no place here"));
}

StatusOr<std::pair<UniqueFd, Standing>> FollowSession::CopyStore() const {
  const std::string path = followed_.state_dir + "/store-for-standby.db";
  ::unlink(path.c_str());
  {
    LH_ASSIGN_OR_RETURN(StoreCopy copy, StoreCopy::Begin(followed_.state_dir + "/store.db"));
    LH_RETURN_IF_ERROR(copy.WriteTo(path).status());
  }
  Standing standing;
  {
    LH_ASSIGN_OR_RETURN(sqlite::Database database,
                        sqlite::Database::Open(path, SQLITE_OPEN_READONLY));
    LH_ASSIGN_OR_RETURN(standing, ReadStanding(database));
  }
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return FromErrno(fmt::format("cannot open {}", path), errno);
  ::unlink(path.c_str());  // it lives as long as it is open
  return std::pair(std::move(fd), standing);
}

Status FollowSession::Begin() {
  // From now on changes come. Those before are in the store, and what is in both is left out.
  const auto [seat, term] = [&] {
    const std::lock_guard lock(mutex_);
    return std::pair(seat_, knows_term_);
  }();
  LH_RETURN_IF_ERROR(followed_.leadership->Follow(shared_from_this(), seat, term,
                                                  stands_ ? stands_->logged() : History()));
  v1::FollowedMessage message;
  v1::FollowedMessage::Begin& begin = *message.mutable_begin();
  begin.set_term(followed_.leadership->term());
  begin.set_tenure(followed_.leadership->tenure().value());
  begin.set_seat(followed_.leadership->record().seat.seat);
  begin.set_gives_way(followed_.leadership->NeedsWay());
  begin.set_version(followed_.version);
  LH_ASSIGN_OR_RETURN(*begin.mutable_authority(),
                      ReadSecret(followed_.state_dir + "/authority.pem"));
  LH_ASSIGN_OR_RETURN(*begin.mutable_relay_secret(),
                      ReadSecret(followed_.state_dir + "/relay-secret"));
  LH_ASSIGN_OR_RETURN(ChangeReader reader, ChangeReader::Begin(followed_.state_dir + "/store.db"));
  LH_ASSIGN_OR_RETURN(const std::optional<uint64_t> resume, reader.Resume(stands_));
  UniqueFd copy;
  History newest = reader.newest();
  std::vector<v1::StoreChange> missed;
  if (resume) {
    begin.set_resume_after(*resume);
    while (true) {
      LH_ASSIGN_OR_RETURN(std::optional<v1::StoreChange> change, reader.Next());
      if (!change) break;
      missed.push_back(*std::move(change));
    }
    LogInfo("the standby {} resumes after change {}, and lacks {}", address_, *resume,
            missed.size());
  } else {
    LH_ASSIGN_OR_RETURN(auto copied, CopyStore());
    copy = std::move(copied.first);
    newest = copied.second.applied;
    struct stat info {};
    if (::fstat(copy.get(), &info) != 0) return FromErrno("cannot stat the copy", errno);
    begin.set_store_bytes(static_cast<uint64_t>(info.st_size));
    LogInfo("the standby {} gets a copy of the store up to change {}", address_, newest.number);
  }
  *begin.mutable_history() = ToProto(newest);
  begin.set_change(newest.number);
  {
    const std::lock_guard lock(mutex_);
    has_from_ = newest.number;
    for (const v1::StoreChange& change : missed) PushChangeLocked(change);
    // The newest change may have been under way, and in the store already.
    for (const v1::StoreChange& change : std::exchange(early_, {})) {
      if (change.number() > newest.number) PushChangeLocked(change);
    }
    listening_ = true;
  }
  LH_RETURN_IF_ERROR(ListBlobs());
  const std::lock_guard lock(mutex_);
  begun_ = true;
  begin_ = std::move(message);
  copy_ = std::move(copy);
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

void FollowSession::Changed(const v1::StoreChange& change) {
  const std::lock_guard lock(mutex_);
  if (end_) return;
  if (listening_) {
    PushChangeLocked(change);
  } else {
    early_.push_back(change);
  }
}

void FollowSession::PushChangeLocked(const v1::StoreChange& change) {
  for (const v1::StoreChangePiece& piece : CutChange(change)) {
    v1::FollowedMessage message;
    *message.mutable_change() = piece;
    PushLocked(std::move(message));
  }
}

void FollowSession::Drop(const Status& why) {
  End(why);
}

void FollowSession::HandOver() {
  v1::FollowedMessage message;
  message.mutable_hand_over();
  const std::lock_guard lock(mutex_);
  PushLocked(std::move(message));
}

void FollowSession::AddBlob(v1::BlobFolder folder, const std::string& sha256, uint64_t bytes) {
  v1::FollowedMessage message = BlobMessage(folder, sha256);
  message.mutable_blob()->set_bytes(bytes);
  std::unique_lock lock(mutex_);
  sent_blobs_.insert({folder, sha256});
  PushLocked(std::move(message));
  // Small files are there when an upload is answered. Nobody waits for large ones.
  changed_.wait_until(lock, (Now() + kPatience).ToChrono(), [&] {
    return !live_ || end_.has_value() || !sent_blobs_.contains({folder, sha256});
  });
}

// A blob that is damaged here is deleted, and the session asks the follower for its copy (Damaged).
void FollowSession::CheckBlob(const v1::FollowerMessage::BlobTrouble& trouble) {
  if (!v1::BlobFolder_IsValid(trouble.folder())) return;
  const BlobStore* const blobs =
      trouble.folder() == v1::BLOB_FOLDER_DATA ? followed_.blobs : followed_.copies;
  followed_.shell->upload_threads().Add(
      "check of a blob", [blobs, sha256 = trouble.sha256(), why = trouble.why()] {
        const Status status = blobs->Check(sha256);
        if (absl::IsDataLoss(status)) {
          LogError("blob {} was damaged here, and is asked for at the standby: {}", sha256,
                   Message(status));
        } else if (!status.ok()) {
          LogError(
              "blob {} was damaged here, and the standby has no copy of it ({}): runs that name it "
              "need it again from whoever submits it",
              sha256, why);
        }
      });
}

void FollowSession::Beat() {
  v1::FollowedMessage message;
  v1::FollowedMessage::Beat& beat = *message.mutable_beat();
  beat.set_committed(followed_.leadership->committed());
  beat.set_term(followed_.leadership->term());
  beat.set_tenure(followed_.leadership->tenure().value());
  beat.set_in_sync(followed_.leadership->IsInSync(this));
  const std::lock_guard lock(mutex_);
  if (end_) return;
  if (begun_ && Now() - heard_ > kPatience) {
    EndLocked(
        DeadlineExceeded("the standby has said nothing for {}", absl::FormatDuration(kPatience)));
    return;
  }
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
    // Only this stream and the journal wait for the lock, and the journal waits for the same disk.
    // NOLINTNEXTLINE(clang-analyzer-unix.BlockInCriticalSection)
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
  followed_.leadership->Gone(this);
  self_.reset();  // Last: this may be the end of `this`.
}

}  // namespace longhaul::coordinator
