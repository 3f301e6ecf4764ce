// A coordinator that does not lead: follows the other one and keeps a copy of everything needed to
// replace it, until this one is elected (coordinator/lead/seat.h). It dials again whenever the
// connection is lost. When it has heard of no leader for a lease, it asks the witness, which dials
// its port, to elect it.
//
// Threads: the object has four of its own. elected() may be called on any thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <array>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/lead/seat.h"
#include "coordinator/standby/blob_giver.h"
#include "coordinator/standby/blob_puller.h"
#include "coordinator/standby/change_pieces.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/standby/state_copy.h"
#include "coordinator/standby/waiting_port.h"
#include "coordinator/store/blob_scrub.h"
#include "coordinator/store/store_check.h"
#include "longhaul/v1/standby.grpc.pb.h"
#include "proto/member/access.h"

namespace longhaul::coordinator {

struct FollowerOptions {
  std::string peer;       // host:port of the other coordinator
  std::string listen;     // host:port where this one will serve if it is elected
  std::string state_dir;  // created if missing
  // Path of a join token for admins. Needed until the standby has a certificate; empty: none.
  std::string token_file;
  std::string version;  // of this program
  // Silence of the leader after which the witness is asked. For tests: shorter.
  absl::Duration lease = kLease;
  // How the copy is looked through for damage. What is damaged comes again from the leader.
  BlobScrub::Pace scrub;
  StoreCheck::Pace store_check;
};

// Decides whether the coordinator of a state directory begins as a follower, and of whom. Returns
// host:port of the other coordinator, or "" if this one leads. `peer`: as a person named it; empty:
// nobody did. `prefers_to_follow`: a directory that was never used follows. Blocks for at most 2 s.
// Errors: those of ReadLeadership.
StatusOr<std::string> CoordinatorToFollow(const std::string& state_dir, const std::string& peer,
                                          bool prefers_to_follow);

class Follower {
 public:
  // Starts to follow, and returns before the copy is complete. Dials again and again while the
  // other coordinator cannot be reached. The state directory may be that of a coordinator that has
  // led, if its records are in sync with another's or the other one leads by now.
  // kFailedPrecondition: the directory has runs that nobody else has, or the token is missing.
  // Other errors: `listen` or a file of the directory cannot be used.
  static StatusOr<std::unique_ptr<Follower>> Start(const FollowerOptions& options);
  // Stops following. When the destructor returns, the port and the directory are free.
  ~Follower();

  // The seat once it was elected and may lead alone: destroy this object, and serve with the seat
  // (ServerOptions::elected). From then on it no longer follows.
  std::optional<Seat> elected() const;

 private:
  using Stream = grpc::ClientReaderWriter<v1::FollowerMessage, v1::FollowedMessage>;
  class Refetched;

  Follower(FollowerOptions options, StateCopy copy)
      : options_(std::move(options)), copy_(std::move(copy)) {}
  void Loop();
  Status EnsureAccess();
  Status EnsurePort(const std::string& authority_pem);
  // Follows over one connection, until it ends.
  Status Follow();
  Status Take(const v1::FollowedMessage& message, Stream* stream);
  Status TakeBegin(const v1::FollowedMessage::Begin& begin, Stream* stream);
  Status TakeChange(const v1::StoreChange& change, Stream* stream);
  Status TakeBlob(const v1::FollowedMessage::Blob& blob);
  Status RemoveUnlisted();
  // Tells the seat where the store stands, and the leader if `stream` is not null.
  void NoteStore(Stream* stream);
  // Looks through blobs and store from now on.
  void LookForDamage();
  void ForgetDamaged();
  void RenewLoop();
  // Tells the leader how much of the blobs is not here yet, if that has changed.
  void SayMissing(Stream* stream);
  void SayHas(const ListedBlob& blob);
  // Tells the leader that a blob is damaged there, or that it is not here either.
  void SayTrouble(const ListedBlob& blob, const Status& why);
  // Writes to the open stream, if there is one.
  void SayNow(const v1::FollowerMessage& message);
  // False: the stream has ended.
  bool Say(Stream* stream, const v1::FollowerMessage& message);
  void WatchLoop();
  // Asks the witness for what this seat needs to lead, if it is time. The caller holds mutex_.
  void CampaignLocked(MonoTime now);
  Status OnWitnessHello(const std::string& name, const witness::Record& record);
  void OnWitnessAnswer(const v1::WitnessSays::Answer& answer);
  void TakeWitnessRecordLocked(const witness::Record& record);
  // Whether it is time to ask the other coordinator for its vote: nobody leads, and the witness is
  // away or does not elect this one.
  bool MayAskOther() const;
  // Asks the other coordinator for its vote, and waits for the answer. On the Loop thread.
  void AskOther();
  // The other coordinator asks for this one's vote.
  v1::VoteReply OnVote(const v1::VoteRequest& request);
  // Carries out the seat's effects. Returns what it says to the other seat. The caller holds
  // mutex_.
  std::optional<SeatMessage> CarryLocked();
  void WriteLocked();
  // False if the follower is closing.
  bool Sleep(absl::Duration duration);

  const FollowerOptions options_;
  StateCopy copy_;               // used on the Loop thread, except its blobs
  ChangeJoiner joiner_;          // used on the Loop thread
  uint64_t committed_ = 0;       // used on the Loop thread: what the leader has committed
  uint64_t verified_ = 0;        // used on the Loop thread: up to here the store is as the leader's
  uint64_t said_missing_ = 0;    // used on the Loop thread: blobs that SayMissing named last
  std::set<ListedBlob> listed_;  // used on the Loop thread: blobs that the leader has
  std::shared_ptr<Access> access_;  // used on the Loop thread, while no coordinator is followed
  std::optional<StubOf<v1::StandbyService>> stub_;
  std::optional<StubOf<v1::SeatService>> seat_stub_;
  std::mutex write_mutex_;  // held while writing to the stream

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  Seat seat_{SeatRecord{}};
  LeadershipRecord record_;
  MonoTime heard_ = Now();                     // a leader, or the start
  MonoTime asked_{};                           // the witness was asked last
  MonoTime witness_heard_ = Now();             // it was, or the start
  std::string witness_seat_;                   // the leader by the witness's newest record
  bool witness_refuses_ = false;               // its newest answer
  std::string witness_why_;                    // why the witness refused last
  std::string last_refusal_;                   // why the other coordinator did not vote
  bool written_ = true;                        // the record is in the file
  bool alone_ = false;                         // elected, and may lead alone
  std::map<std::string, MonoTime> have_come_;  // when each worker last asked for a session
  bool has_store_ = false;                     // no copy of it is under way
  grpc::ClientContext* context_ = nullptr;     // context of the open stream
  Stream* stream_ = nullptr;                   // the open stream
  bool stream_ended_ = false;
  std::string last_trouble_;
  bool said_gone_ = false;  // the log has a line on the lost coordinator, since it last followed
  bool follows_ = false;    // the leader has begun to send
  bool dialled_ = false;    // the other coordinator was dialled, and that has ended
  bool distrusts_ = false;  // the store is damaged: the next stream brings a whole copy
  bool closing_ = false;

  std::string port_authority_;         // of port_; used on the Loop thread
  std::unique_ptr<WaitingPort> port_;  // set with the first authority; guarded by mutex_
  std::unique_ptr<BlobPuller> blobs_;
  std::unique_ptr<BlobGiver> giver_;
  std::array<std::shared_ptr<Refetched>, 2> refetched_;
  std::optional<BlobScrub> scrub_;
  std::optional<StoreCheck> store_check_;
  std::thread watch_, thread_;
};

}  // namespace longhaul::coordinator
