// Orders the measurements of a future plan's edges into rounds. In a round no worker has two edges,
// so its interface carries one link at a time. A link that cannot be measured stays unknown to the
// plan; that is not an error.
//
//   ProbeRounds rounds(edges);
//   while (!rounds.IsWaiting() && !rounds.IsOver()) {
//     for (const ProbeEdge& edge : rounds.Begin(until)) rounds.Add(...);  // and ask both ends
//   }
//   if (const Probe* probe = rounds.Answer(worker, answer)) ...           // then on with the loop
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

// An edge of an unfinished plan, or one that it may have, with the workers of its cells.
struct ProbeEdge {
  EdgeId id;
  WorkerId from, to;
  EdgeKind kind = EdgeKind::kActivations;
  bool round_trips_only = false;
};

struct ProbeResult {
  // Both 0: only round trips were measured.
  double forward_bits_per_second = 0;   // goodput at `to`
  double backward_bits_per_second = 0;  // goodput at `from`
  absl::Duration round_trip;
};

// A request to both ends of an edge to measure the link between them.
struct Probe {
  uint64_t id = 0;
  ProbeEdge edge;
  TransportKind transport = TransportKind::kUcx;
  bool to_dials = false;           // else `from` dials
  std::vector<Relay> relays = {};  // of TransportKind::kRelay
  std::optional<v1::LinkProbed> from_said, to_said;
  bool is_given_up = false;

  bool IsAnswered() const { return is_given_up || (from_said && to_said); }
  const WorkerId& PeerOf(const WorkerId& worker) const {
    return worker == edge.from ? edge.to : edge.from;
  }
  bool Dials(const WorkerId& worker) const { return to_dials == (worker == edge.to); }
  // nullopt: the link could not be measured; Problem() has the reason, in the workers' words.
  std::optional<ProbeResult> Result() const;
  std::string Problem() const;  // "": no answer in time
};

class ProbeRounds {
 public:
  ProbeRounds() = default;  // for a plan without edges
  // Every edge is in the first round in which both its workers are free.
  explicit ProbeRounds(std::vector<ProbeEdge> edges);
  // All edges of the plan, in the order given.
  const std::vector<ProbeEdge>& edges() const { return edges_; }

  // ---- Rounds ---------------------------------------------------------------------

  // Begins the next round and returns its edges; answers count until `until`. Call it only if
  // neither IsWaiting() nor IsOver().
  std::vector<ProbeEdge> Begin(MonoTime until);
  // Records that both ends of an edge of this round are asked now. Edges that cannot be asked are
  // left out.
  const Probe& Add(Probe probe, MonoTime now);
  // Takes the first answer of an end. Impossible rates and times count as a failed measurement.
  // Null: this worker was not asked, or has already answered.
  const Probe* Answer(const WorkerId& worker, const v1::LinkProbed& answer);
  // Measures every edge again, after the probes that are awaited now.
  void Restart() { begun_ = 0; }
  // Gives up late probes, and returns them.
  std::vector<Probe> GiveUp(MonoTime now);

  // ---- State ----------------------------------------------------------------------

  bool HasBegun() const { return begun_ > 0; }
  bool IsWaiting() const;
  bool IsOver() const { return begun_ == rounds_.size() && !IsWaiting(); }
  // Returns the probes of this round that `worker` has not answered.
  std::vector<Probe> AwaitedOf(const WorkerId& worker) const;
  // Time at which the round is given up; MonoTime::max(): no answer is awaited.
  MonoTime NextWake() const;
  // Time since the first end was asked. Has a value only once; nullopt also if no end was asked.
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
