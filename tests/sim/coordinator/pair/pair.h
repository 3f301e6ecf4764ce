// Two coordinators with the same records, their witness, and the network between them, the workers
// and the users. The seats are real (coordinator/lead), and so are the witness's rules, the rules
// of the change log and the state machine. Draws their faults, too.
//
// Threads: one, which runs the timeline. All times are virtual.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/sim/coordinator/lead/sim_witness.h"
#include "tests/sim/coordinator/pair/pair_seat.h"
#include "tests/sim/coordinator/pair/pair_world.h"

namespace longhaul::coordinator::sim {

class Pair {
 public:
  // Both pointers must outlive this object. `workers`: how many there are.
  Pair(World* world, Checkers* checkers, StateOptions options, size_t workers);

  void Begin();
  // The coordinator that leads in the newest term. It may not run.
  SimCoordinator& leader() { return seats_[newest_]->shell(); }
  // Whether leader() runs, and is sure that it leads.
  bool IsLed() const { return seats_[newest_]->sure() && !seats_[newest_]->IsFrozen(); }
  // A worker dials coordinator 0 or 1. Null: it does not answer.
  std::shared_ptr<Connection> Dial(size_t worker, size_t at, Connection::WorkerEnd end);
  // A user calls one of the two. `done`: see SimCoordinator::Ask; null also if nobody has answered
  // for a while, or leads there.
  void Ask(const std::function<Event(RequestId)>& make, const SimCoordinator::Done& done);

  // ---- Faults
  // Draws which faults this simulation has.
  void DrawRates();
  // Draws which of them happen now. Call it each kMoment.
  static constexpr absl::Duration kMoment = absl::Milliseconds(250);
  void Moment();
  // All faults end. All three run, or two of them that can lead.
  void End();

  std::string Describe() const;
  // False: a check has failed.
  bool Fine() { return pair_.Fine(); }
  const std::map<std::string, uint64_t>& seen() const { return pair_.lead.seen; }

 private:
  void WitnessDials();
  void TroubleSeat(PairSeat& seat);
  void TroubleNetwork();
  void TroubleImage(Place place);
  void StayAway(Place place);
  void AwaitLastWords(Place place);
  // Whether a coordinator has every committed change, and can come to lead.
  bool HasAll(Place place);
  // Whether the witness would elect it, and it would ask.
  bool MayLead(PairSeat& seat) const;
  void Cut(size_t one, size_t other, absl::Duration length);
  bool Happens(double a_second);
  absl::Duration Length();

  World* const world_;
  PairWorld pair_;
  std::array<std::unique_ptr<PairSeat>, 2> seats_;
  lead_sim::SimWitness witness_;
  size_t newest_ = kA;
  std::array<uint64_t, 2> line_of_ = {};  // the processes that the witness has dialled
  std::vector<std::array<std::weak_ptr<Connection>, 2>> lines_;  // of workers
  std::array<size_t, kClientCount> asks_ = {};                   // whom each client asks first
  double cut_workers_ = 0;
  std::array<std::optional<lead_sim::SeatDisk>, 2> images_;
  std::array<uint64_t, 2> stores_ = {};  // how often each one's disk was replaced
  bool over_ = false;
};

}  // namespace longhaul::coordinator::sim
