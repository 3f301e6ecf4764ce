// The leader's side of a follower's stream: sends the changes that the follower lacks, or a copy of
// the store where the leader does not keep them any more, then every change, in order. Once the
// follower has everything, changes wait for it (leadership.h). A follower that does not keep up is
// disconnected, and resumes when it comes back.
//
// FollowPort's thread for messages calls OnReadDone, OnWriteDone and OnDone. They do not wait for
// the state machine. Changed, Drop and the methods of Blobs may be called on any thread. The
// object keeps itself alive until its call has ended (OnDone).
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "coordinator/rpc/follow_call.h"
#include "coordinator/rpc/notifier.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/standby/change_pieces.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/change_log.h"
#include "coordinator/store/store.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

// The parts of the coordinator that a session needs. The session copies `store`, `blobs` and
// `copies` to its standby. All pointers must outlive the server.
struct Followed {
  Shell* shell = nullptr;
  Store* store = nullptr;
  const BlobStore* blobs = nullptr;
  const BlobStore* copies = nullptr;
  Leadership* leadership = nullptr;
  std::string state_dir;
  std::string version;  // of this program; a standby of another version is refused
};

class FollowSession : public FollowCall::Handler,
                      public ChangeSink,
                      public Notifier::Subscriber,
                      public std::enable_shared_from_this<FollowSession> {
 public:
  // The coordinator sends a message at least this often, to show that it lives.
  static constexpr absl::Duration kBeat = absl::Seconds(1);
  // The coordinator disconnects a standby that is silent for this long.
  static constexpr absl::Duration kPatience = kFollowerPatience;
  // Maximum size of all messages that wait to be sent; above it the standby is disconnected.
  static constexpr size_t kMaxOutgoingBytes = kMaxChangeBytes;

  // Begins a session on a new call of a caller that was admitted. Returns at once.
  static void Start(const Followed& followed, FollowCall* call);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone() override;

  void Changed(const v1::StoreChange& change) override;
  void Drop(const Status& why) override;
  void HandOver() override;
  void OnNews() override {}
  void OnShutdown() override;

 private:
  class Blobs;
  FollowSession(Followed followed, FollowCall* call)
      : followed_(std::move(followed)), call_(call) {}

  void TakeLocked();
  void TellLeadership();
  // Finds out what the follower lacks, on one of the shell's upload threads. It may still run after
  // OnDone.
  Status Begin();
  // Copies the store into a file without a name, and returns the file and where the copy stands.
  StatusOr<std::pair<UniqueFd, Standing>> CopyStore() const;
  Status ListBlobs();
  void CheckBlob(const v1::FollowerMessage::BlobTrouble& trouble);
  void Beat();
  void AddBlob(v1::BlobFolder folder, const std::string& sha256, uint64_t bytes);
  void PushLocked(v1::FollowedMessage message);
  void WriteNextLocked();
  // Returns the next piece of the copy; an empty one after the last.
  StatusOr<v1::FollowedMessage> NextPiece();
  void PushChangeLocked(const v1::StoreChange& change);
  void EndLocked(const Status& status);
  void End(const Status& status);

  const Followed followed_;
  FollowCall* const call_;                // valid until OnDone
  std::shared_ptr<FollowSession> self_;   // set until OnDone
  std::shared_ptr<Blobs> data_, copies_;  // set by Begin
  v1::FollowerMessage incoming_;          // belongs to gRPC while a read is under way

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::string address_;             // from the standby's hello
  std::string seat_;                // the same
  uint64_t knows_term_ = 0;         // the greatest
  std::optional<Standing> stands_;  // where its store stood then
  bool greeted_ = false;
  std::optional<v1::FollowedMessage> begin_;  // set until it is written
  UniqueFd copy_;                             // the copy of the store, until it is sent
  bool begun_ = false;                        // begin_ was set
  bool listening_ = false;                    // changes go into outgoing_
  uint64_t has_from_ = 0;  // the newest change when it began; with it the standby has everything
  std::deque<v1::StoreChange> early_;         // changes that came before listening_
  std::deque<v1::FollowedMessage> outgoing_;  // to send after the copy
  std::optional<v1::FollowedMessage> writing_;
  size_t outgoing_bytes_ = 0;
  bool live_ = false;  // the standby has everything: writes wait for it
  std::set<std::pair<int, std::string>> sent_blobs_;  // sent but not yet confirmed
  MonoTime heard_ = Now();
  std::optional<Status> end_;
  bool finished_ = false;
};

}  // namespace longhaul::coordinator
