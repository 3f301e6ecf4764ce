// One of two simulated coordinators: its disk, its process, and the real Seat. The process follows
// the other coordinator or leads, at the times and in the order of coordinator/standby (follower.h,
// campaign.cc, leadership.h), with the real rules of the change log (store/journal_core.h). While
// it leads and its term has begun, it runs a state machine (SimCoordinator).
//
// The process can die between any two writes. Threads: one. All times are virtual.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/lead/seat.h"
#include "coordinator/lead/worker_word.h"
#include "tests/sim/coordinator/lead/seat_disk.h"
#include "tests/sim/coordinator/pair/messages.h"
#include "tests/sim/coordinator/pair/pair_world.h"
#include "tests/sim/coordinator/sim_coordinator.h"
#include "tests/sim/coordinator/sim_store.h"

namespace longhaul::coordinator::sim {

class PairSeat {
 public:
  using SendToOther = std::function<void(pair_message::Message)>;
  using SendToWitness = std::function<void(witness::Request)>;

  // `first`: the installation began here. `pair` must outlive this object.
  PairSeat(PairWorld* pair, Place place, bool first);
  // `reaches_witness`: the witness's connection to this coordinator is open.
  void Connect(SendToOther to_other, SendToWitness to_witness,
               std::function<bool()> reaches_witness);

  void Start();
  // `power`: the machine loses power, and with it what was not synced.
  void Crash(bool power);
  // The process stands still. `clock_too`: it has no time meanwhile, as in a paused machine.
  void Freeze(absl::Duration length, bool clock_too);
  void StallDisk(absl::Duration length);
  void FillDisk(absl::Duration length);
  // The other one has got another disk, so no connection to it goes on.
  void LoseOther();
  // Every fault of this coordinator ends now, and it runs.
  void Heal();

  void Receive(const pair_message::Message& message);
  // The witness has dialled (`hello`) or answers.
  void HearWitness(const witness::Record& record, bool hello);
  // A worker opens a stream. Null: nobody serves here.
  std::shared_ptr<Connection> Accept(Connection::WorkerEnd end);
  // A user calls. `done`: see SimCoordinator::Ask.
  void Ask(const std::function<Event(RequestId)>& make, SimCoordinator::Done done);

  bool running() const { return mode_ != Mode::kDown; }
  bool IsFrozen() const { return frozen_until_ > timeline().now(); }
  // Leads, and its term has begun: it serves workers and users.
  bool acts() const { return mode_ == Mode::kLeads && shell_->running(); }
  bool sure() const;
  uint64_t term() const { return running() ? seat_->record().term : disk_.record.term; }
  const std::string& name() const { return disk_.record.seat; }
  SimCoordinator& shell() { return *shell_; }
  lead_sim::SeatDisk& disk() { return disk_; }
  uint64_t process() const { return process_; }
  // Its process knows that the witness counts, and has taken its connection.
  bool takes_witness() const { return takes_witness_; }
  // It takes no message, because it stands still or its disk has not answered yet.
  bool is_busy() const { return busy_ || !todo_.empty() || IsFrozen(); }
  std::string Describe() const;

  bool gave_way() const { return seat_->gave_way(); }
  // Whether its records, as far as they are applied, name a witness.
  bool HasWitness() const;

 private:
  enum class Mode : uint8_t { kDown, kStarts, kFollows, kLeads };
  // A change between Secure and its commit.
  struct UnderWay {
    std::shared_ptr<const PairChange> change;
    Tenure tenure;
    std::function<void()> then;
    MonoTime began, secured_at;
    bool proposed = false, secured = false, committing = false, by_both = false;
  };

  Timeline& timeline() const { return pair_->world->timeline; }
  Random& random() const { return pair_->world->random; }
  MonoTime LocalNow() const;
  void Later(absl::Duration delay, std::function<void()> action);
  // Runs `action` once the disk has done a write; the process may die instead. `full`: runs instead
  // of it where the disk is full.
  void OnDisk(std::function<void()> action, std::function<void()> full);
  void Tick();
  Tenure NewTenure();
  // Carries out the seat's effects.
  void Carry();
  void CarryOne(const Effect& effect);
  void HandleInbox();
  void Handle(const pair_message::Message& message);
  void OnWitness(const witness::Record& record, bool hello);
  void ServeWhenElected();
  void StoreRecord();
  // This process ends and begins anew.
  void BeginAnew(const std::string& why);

  // ---- A follower (pair_follower.cc)
  void Follow();
  void TickAsFollower();
  void Campaign();
  void AskOther();
  void OnVote(const seat_message::Vote& vote);
  void Dial();
  void EndStream();
  void TakeStream(const pair_message::Message& message);
  void TakeBegin(const pair_message::Begin& begin);
  void TakeChange(const pair_message::Change& change);
  // Writes to the disk, and takes no message before `written` was called. A full disk ends the
  // stream instead.
  void Write(std::function<void()> written);
  void Apply();
  void ApplyUpTo(uint64_t committed);
  void NoteStore();
  void SayLogged();
  Standing standing() const;

  // ---- A leader (pair_leader.cc)
  void LeadBy(std::optional<Seat> elected);
  void TickAsLeader();
  void Beat();
  void BeatWorkers();
  void TakeFollower(const pair_message::Message& message);
  void SendDown(decltype(pair_message::Message::body) body);
  void DropFollower();
  void Write(std::vector<coordinator::Write> writes, bool sets_witness, std::function<void()> then);
  void TryNext();
  uint64_t ChainUnderWay() const;
  void LookAtChange();
  void Commit();
  bool WaitsForWitness() const;
  bool Admits(const v1::Hello& hello);
  void BuildStore();

  PairWorld* const pair_;
  const Place place_;
  SendToOther to_other_;
  SendToWitness to_witness_;
  std::function<bool()> reaches_witness_;
  lead_sim::SeatDisk disk_;
  std::unique_ptr<SimCoordinator> shell_;
  uint64_t process_ = 0;
  Mode mode_ = Mode::kDown;
  std::unique_ptr<Seat> seat_;  // while it runs
  std::deque<Effect> todo_;
  std::deque<std::function<void()>> inbox_;  // what waits for the disk
  bool busy_ = false;                        // the thread that reads waits for the disk
  bool carries_ = false;                     // Carry runs
  bool takes_witness_ = false;
  MonoTime frozen_until_, stalled_until_, full_until_;
  absl::Duration lost_time_;  // how far its clock is behind

  // What a follower knows.
  uint64_t stream_ = 0;  // the stream that it reads; 0: none
  uint64_t sent_ = 0, received_ = 0;
  bool follows_ = false, has_store_ = true, dialled_ = false, written_ = false;
  bool elected_ = false;
  MonoTime asked_other_;
  uint64_t committed_ = 0, verified_ = 0;
  std::string witness_seat_;  // whom the witness elected last
  MonoTime heard_, asked_, dialled_at_;

  // What a leader knows.
  struct Follower {
    uint64_t stream = 0;
    std::string seat;
    uint64_t sent = 0, received = 0;
    uint64_t has_from = 0;
    MonoTime heard;
  };
  std::optional<Follower> follower_;
  bool live_ = false;
  std::optional<UnderWay> under_way_;
  std::deque<UnderWay> waiting_;  // changes behind it
  std::unique_ptr<SimStore> store_;
  uint64_t built_ = 0, built_chain_ = 0;  // the newest change in store_
  bool witness_refuses_ = false;          // it did not elect this one when asked last
  bool has_witness_ = false, introduce_ = false, witness_agrees_ = false, adopts_witness_ = false;
  bool told_sure_ = true, just_elected_ = false;
  uint64_t synced_ = 0;
  MonoTime live_since_, started_, follower_heard_, follower_left_, witness_heard_, witness_asked_,
      shrink_asked_;
  MonoTime follower_beat_, workers_beat_;
  std::optional<MonoTime> superseded_;  // since when another leader is known to the checkers
  WorkerWords words_;
};

}  // namespace longhaul::coordinator::sim
