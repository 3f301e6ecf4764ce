// The leadership of a serving coordinator: its seat (coordinator/lead/seat.h), with a clock, a
// thread, the follower's stream and the witness. It secures each change of the store
// (replicator.h): in sync with a follower, a change is committed after the follower has stored it,
// and without the follower only after the witness has agreed that this coordinator goes on alone.
//
// Thread-safe. The thread looks at the clock a few times a second.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "coordinator/lead/seat.h"
#include "coordinator/lead/worker_word.h"
#include "coordinator/standby/leadership_record.h"
#include "coordinator/store/replicator.h"
#include "longhaul/v1/control.pb.h"
#include "longhaul/v1/standby.pb.h"

namespace longhaul::coordinator {

// A leader that has heard neither its follower nor the witness for this long is not sure that it
// still leads.
inline constexpr absl::Duration kLease = absl::Seconds(5);
// How long a change waits for the follower. Then the leader asks the witness to go on alone.
inline constexpr absl::Duration kFollowerPatience = absl::Seconds(3);

// The right by which a coordinator begins to serve from a state directory.
enum class Claim : uint8_t {
  kOwn,    // its own record says that it leads alone
  kForce,  // a person demands it
};

// Sends the follower what changes.
class ChangeSink {
 public:
  virtual ~ChangeSink() = default;
  // Takes the next change, which is not committed yet. Must return at once.
  virtual void Changed(const v1::StoreChange& change) = 0;
  // The follower does not keep up, or another one follows: ends its stream.
  virtual void Drop(const Status& why) = 0;
  // Tells the follower to ask for this coordinator's vote. Must return at once.
  virtual void HandOver() = 0;
};

// What leadership knows of the witness that counts, in the store (voting.h).
struct VotingWitness {
  std::string id;  // empty: none
  std::string name;
};

class Leadership : public Replicator {
 public:
  struct Hooks {
    // Sends a request to the witness; returns at once. False: it cannot be reached now.
    std::function<bool(const witness::Request& request)> ask_witness;
    // Stores that this witness counts, as a change of the store. Called on the thread.
    std::function<Status(const VotingWitness& witness)> set_witness;
    // Whether a member of this name is there, and not revoked.
    std::function<bool(const std::string& name)> is_member;
    // Asks the coordinator at host:port for its term, for at most some seconds. nullopt: none leads
    // there. Called on the thread.
    std::function<std::optional<uint64_t>(const std::string& address)> ask_term;
    std::string address;  // host:port where this coordinator serves
    // It has just been elected. Else its records may be an older copy, so the witness is asked
    // first.
    bool elected = false;
    // OK: it is sure that it leads. Else kUnavailable, with the reason. Called when that changes.
    std::function<void(const Status& sure)> on_sure;
  };

  // `seat` leads. Writes its record to the state directory; the error of that.
  static StatusOr<std::unique_ptr<Leadership>> Begin(std::string state_dir, LeadershipRecord record,
                                                     Seat seat);
  ~Leadership() override;
  // Starts the thread. `witness`: as the store has it. Call it once, when changes may be written.
  void Start(Hooks hooks, VotingWitness witness);
  // Ends the thread, for a process that ends. Changes that wait for the follower or the witness
  // fail with kAborted after `patience`, and later ones at once.
  void Close(absl::Duration patience);

  // ---- Replicator
  uint64_t term() const override { return term_; }
  StatusOr<Held> Secure(const v1::StoreChange& change) override;
  bool needs_sync() const override;
  void Committed(const History& history) override;

  const Tenure& tenure() const { return tenure_; }
  LeadershipRecord record() const;
  uint64_t committed() const;  // number of the newest committed change
  // OK: it is sure that it leads.
  Status sure() const;
  // Not OK: this coordinator leads no more, and its process should end or begin anew as a follower.
  Status failure() const;
  // The reason of failure(): this coordinator has to begin a newer term, in a new process.
  bool begins_anew() const;
  // A worker says which leader it has obeyed (worker_word.h). OK: it will obey this one. Else
  // kUnavailable: it should ask again, here or at the other coordinator.
  Status OnWorker(const WorkerWord& word);

  // ---- The follower's stream
  // From now on `sink` gets every change, the one under way first. The changes before that are in
  // the store. `seat`: the follower's id. `term`: the greatest that it knows. `logged`: its newest
  // change. kFailedPrecondition: another follower is there. kUnavailable: the follower lacks
  // changes that it had, so this coordinator asks to go on alone first; or it knows a newer term,
  // so this coordinator leads no more. It should dial again.
  Status Follow(const std::shared_ptr<ChangeSink>& sink, const std::string& seat, uint64_t term,
                const History& logged);
  // Whether the follower has to give way (seat.h), and whether it is in sync.
  bool NeedsWay() const;
  bool IsInSync(const ChangeSink* sink) const;
  // The follower has not pulled these blobs yet.
  void Misses(const ChangeSink* sink, uint64_t blobs, uint64_t bytes);
  // The follower has stored this change and all before it. Counts as a sign of life.
  void Has(const ChangeSink* sink, const History& logged);
  // The follower has everything, so changes wait for it, and it is in sync as soon as a witness
  // counts. `seat`: its id. `address`: where it listens.
  void HasAll(const ChangeSink* sink, const std::string& seat, const std::string& address);
  void Gone(const ChangeSink* sink);

  // ---- The witness. kFailedPrecondition: another witness counts.
  Status OnWitnessHello(const std::string& name, const witness::Record& record);
  void OnWitnessAnswer(const v1::WitnessSays::Answer& answer);

  // ---- To lead no more. Both block for some seconds at most.
  // Lets the standby at `address` be elected in the place of this coordinator; the newer term.
  // kFailedPrecondition: it is not in sync. kDeadlineExceeded: it did not ask; this one leads on.
  StatusOr<uint64_t> HandOver(const std::string& address);
  // Goes on without the standby, which is not in sync again before this process ends. kUnavailable:
  // the witness did not agree.
  Status GoAlone();
  // The other seat asks to be elected.
  v1::VoteReply OnVote(const v1::VoteRequest& request);

  // ---- For people
  v1::LeadershipInfo Info() const;
  // True while a follower that has everything is connected. nullopt: none has ever followed.
  std::optional<bool> has_standby() const;

 private:
  Leadership(std::string state_dir, LeadershipRecord record, Seat seat)
      : state_dir_(std::move(state_dir)),
        term_(seat.record().term),
        tenure_(seat.tenure()),
        record_(std::move(record)),
        seat_(std::move(seat)) {}
  void Loop();
  void TickLocked(MonoTime now);
  static Status LeadsNoMore();
  // Carries out the seat's effects. Returns what it says to the other seat.
  std::optional<SeatMessage> CarryLocked();
  Status WriteLocked();
  void FailLocked(uint64_t newer_term);
  void TellSure(std::unique_lock<std::mutex>* lock);
  void AdoptWitness(std::unique_lock<std::mutex>* lock);
  // A witness that was revoked counts no longer.
  void ForgetRevokedWitness(std::unique_lock<std::mutex>* lock);
  void AskForTerm(std::unique_lock<std::mutex>* lock);
  LeaderNow NowLocked(const WorkerWord& word) const;
  void FollowWordLocked(const WordAnswer& answer, const WorkerWord& word);
  Status SureLocked(MonoTime now) const;
  bool WaitsForWitnessLocked(MonoTime now) const;

  const std::string state_dir_;
  const uint64_t term_;
  const Tenure tenure_;
  const int64_t since_unix_ms_ = UnixMsNow();
  Hooks hooks_;

  mutable std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  LeadershipRecord record_;
  Seat seat_;
  std::shared_ptr<const v1::StoreChange> under_way_;  // from Secure until Committed
  uint64_t secured_ = 0;   // number of the newest change that may be committed
  MonoTime secured_at_{};  // when Secure returned last
  uint64_t committed_ = 0;
  bool secured_by_both_ = false;  // the newest one that is secured
  uint64_t synced_ = 0;           // number of the newest change that both have on disk
  std::shared_ptr<ChangeSink> sink_;
  bool live_ = false;  // sink_'s follower has everything
  std::string live_seat_, live_address_;
  uint64_t missing_blobs_ = 0, missing_bytes_ = 0;  // of the follower
  bool hands_over_ = false;
  bool stays_alone_ = false;  // a person wants it so
  MonoTime follower_heard_{}, follower_left_{}, live_since_{};
  VotingWitness witness_;
  std::optional<VotingWitness> new_witness_;  // to be adopted
  bool introduce_ = false;                    // the witness has an empty record
  bool witness_agrees_ = false;               // its record is as the seat's
  std::string witness_why_;                   // why it refused last
  MonoTime started_{}, witness_heard_{}, witness_asked_{}, shrink_asked_{}, member_looked_{};
  WorkerWords words_;
  std::optional<WorkerWord> word_;  // whose leader is to be asked for its term
  Status told_sure_;
  Status failure_;
  bool closing_ = false;
  MonoTime abort_from_ = MonoTime::max();
  std::thread thread_;
};

}  // namespace longhaul::coordinator
