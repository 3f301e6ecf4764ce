// Divides the links that a future plan may use into rounds of measurements. In one round each
// worker has at most one link, so that its network interface carries no other measurement. A link
// that cannot be measured is no error: the plan is made without this link's rate.
//
//   ProbeRounds rounds(edges);
//   while (!rounds.IsWaiting() && !rounds.IsOver()) {
//     for (const ProbeEdge& edge : rounds.Begin(until)) rounds.Add(...);  // and ask both ends
//   }
//   if (const Probe* probe = rounds.Answer(worker, answer)) ...           // then continue the loop
//
// Pure data; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "longhaul/v1/worker.pb.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"

namespace longhaul::coordinator {

// A link to measure: an edge (run/plan/plan.h) that the future plan has or may get. `from` and `to`
// are the workers at the ends of the edge.
struct ProbeEdge {
  EdgeId id;
  WorkerId from, to;
  EdgeKind kind = EdgeKind::kActivations;
  bool round_trips_only = false;  // no goodput, which takes seconds to measure
};

struct ProbeResult {
  // Both rates are 0 if only round trips were measured.
  double forward_bits_per_second = 0;   // goodput at `to`
  double backward_bits_per_second = 0;  // goodput at `from`
  absl::Duration round_trip;
};

// A request to both ends of an edge to measure the link between them.
struct Probe {
  uint64_t id = 0;
  ProbeEdge edge;
  TransportKind transport = TransportKind::kUcx;
  bool to_dials = false;                             // true: `to` dials; false: `from` dials
  std::vector<Relay> relays = {};                    // only for TransportKind::kRelay
  std::optional<v1::LinkProbed> from_said, to_said;  // the answers of the ends
  bool is_given_up = false;                          // no answer came in time

  bool IsAnswered() const { return is_given_up || (from_said && to_said); }
  const WorkerId& PeerOf(const WorkerId& worker) const {
    return worker == edge.from ? edge.to : edge.from;
  }
  bool Dials(const WorkerId& worker) const { return to_dials == (worker == edge.to); }
  // Returns the result of an answered probe. nullopt: the link could not be measured; Problem() is
  // the reason, in the workers' words.
  std::optional<ProbeResult> Result() const;
  std::string Problem() const;  // "": no answer came in time, or an end measured no goodput
};

class ProbeRounds {
 public:
  ProbeRounds() = default;  // for a plan without edges
  // Puts each edge into the first round in which neither of its workers has another edge.
  explicit ProbeRounds(std::vector<ProbeEdge> edges);
  // All edges of the plan, in the order given.
  const std::vector<ProbeEdge>& edges() const { return edges_; }

  // ---- Rounds ---------------------------------------------------------------------

  // Begins the next round and returns its edges. Answers count until `until`. Call this only if
  // IsWaiting() and IsOver() are false.
  std::vector<ProbeEdge> Begin(MonoTime until);
  // Records that both ends of an edge of this round are asked now. Call it only for edges whose
  // ends can be asked. The reference is valid until the next call of Add or Begin.
  const Probe& Add(Probe probe, MonoTime now);
  // Takes the first answer of one end, and returns the probe; valid until the next call of Add or
  // Begin. An answer with impossible rates or times counts as a failed measurement. Null: the
  // worker was not asked, or has already answered, or the probe was given up.
  const Probe* Answer(const WorkerId& worker, const v1::LinkProbed& answer);
  // Measures every edge again: the next Begin begins the first round. Unanswered probes of the
  // present round must end first.
  void Restart() { begun_ = 0; }
  // Gives up and returns the unanswered probes if the time of the round is over, else returns none.
  std::vector<Probe> GiveUp(MonoTime now);

  // ---- State ----------------------------------------------------------------------

  bool HasBegun() const { return begun_ > 0; }
  // Returns whether a probe of the newest round is unanswered.
  bool IsWaiting() const;
  bool IsOver() const { return begun_ == rounds_.size() && !IsWaiting(); }
  // Returns the probes of this round that `worker` has not answered.
  std::vector<Probe> AwaitedOf(const WorkerId& worker) const;
  // Returns when the round is given up; MonoTime::max(): no answer is awaited.
  MonoTime NextWake() const;
  // Returns the time since the first Add after the last call of TakeDuration. nullopt: Add was not
  // called since.
  std::optional<absl::Duration> TakeDuration(MonoTime now);

 private:
  std::vector<ProbeEdge> edges_;
  std::vector<std::vector<ProbeEdge>> rounds_;
  size_t begun_ = 0;
  std::vector<Probe> probes_;  // of the newest round
  MonoTime until_;
  std::optional<MonoTime> since_;
};

}  // namespace longhaul::coordinator
