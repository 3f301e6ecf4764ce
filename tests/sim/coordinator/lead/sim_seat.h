// A real Seat in a simulated process: a store, a clock, a connection to the other seat and to the
// witness. It asks to lead, beats, shrinks and grows at the times at which a coordinator does, and
// carries out the effects one by one. The process can die between any two of them.
// Threads: one. All times are virtual.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/lead/seat.h"
#include "tests/sim/coordinator/lead/messages.h"
#include "tests/sim/coordinator/lead/seat_disk.h"
#include "tests/sim/coordinator/lead/world.h"

namespace longhaul::coordinator::lead_sim {

// How long a leader may be heard of nowhere.
constexpr absl::Duration kLease = absl::Seconds(5);

class SimSeat {
 public:
  using SendToSeat = std::function<void(ToSeat)>;
  using SendToWitness = std::function<void(witness::Request)>;

  // `first`: the installation began here. `world` must outlive this object.
  SimSeat(World* world, Place place, bool first);
  void Connect(SendToSeat to_other, SendToWitness to_witness);

  void Start();
  // `power`: the machine loses power, and with it what was not synced.
  void Crash(bool power);
  // The process stands still. `clock_too`: it has no time meanwhile, as in a paused machine.
  void Freeze(absl::Duration length, bool clock_too);
  void StallDisk(absl::Duration length);
  void FillDisk(absl::Duration length);
  // Somebody puts an older image of the disk in the place of the present one. The process is gone.
  void PutBack(const SeatDisk& image);
  // The connection to the other seat has ended, and with it what that has said.
  void LoseOther();
  // Every fault of this seat ends now, and it runs.
  void Heal();
  void Receive(ToSeat message);

  bool running() const { return seat_ != nullptr; }
  // It takes no message, because it stands still or its disk has not answered yet.
  bool is_busy() const { return busy_ || IsFrozen(); }
  // Leads, and its term's change is committed.
  bool acts() const { return running() && acts_; }
  bool sure() const;
  const Seat& seat() const { return *seat_; }
  SeatDisk& disk() { return disk_; }
  const std::string& name() const { return disk_.record.seat; }

 private:
  struct Proposal {
    History change;
    Tenure tenure;
    Content content;
    std::optional<Ask> ask;  // a client's that waits for it
    MonoTime since;
  };

  MonoTime LocalNow() const;
  bool IsFrozen() const { return frozen_until_ > world_->timeline.now(); }
  // Runs `action` after `delay`, once the process is not frozen, and only if it is the same
  // process.
  void Later(absl::Duration delay, std::function<void()> action);
  void Tick();
  void TickAsLeader();
  void TickAsOther();
  void Handle(const ToSeat& message);
  void OnAsk(const Ask& ask);
  void OnHandOver(const HandOver& told);
  void TakeCopy(const Copy& copy);
  void Propose(Content content, std::optional<Ask> ask);
  void SendRows(uint64_t after);
  void Resend(const effect::Resend& resend);
  // Queues the seat's effects, and carries them out.
  void TakeEffects();
  void Pump();
  void Carry(const Effect& effect);
  void Commit(const History& change);
  void AnswerProposal(Answer answer);
  Tenure NewTenure();

  World* const world_;
  const Place place_;
  SendToSeat to_other_;
  SendToWitness to_witness_;
  SeatDisk disk_;
  std::unique_ptr<Seat> seat_;  // null: no process runs
  uint64_t process_ = 0;
  bool acts_ = false;
  std::optional<Proposal> proposal_;
  std::deque<ToSeat> inbox_;  // messages that wait until all effects are carried out
  std::deque<Effect> todo_;
  bool busy_ = false;         // the effect at the front of todo_ waits for the disk
  bool blocking_ = true;      // no message is handled while an effect is under way
  std::optional<Copy> copy_;  // that the effect Resend waits for
  MonoTime heard_leader_, heard_other_, heard_witness_, asked_at_, shrunk_at_, began_;
  bool voted_ = false;                  // the newest message was an answer to a vote
  uint64_t asked_ = 0;                  // how often it has asked to lead
  bool witness_agrees_ = false;         // leader: the witness's record is as its own
  std::optional<MonoTime> hands_over_;  // leader: since when
  MonoTime frozen_until_, stalled_until_, full_until_;
  absl::Duration lost_time_;  // how far its clock is behind
};

}  // namespace longhaul::coordinator::lead_sim
