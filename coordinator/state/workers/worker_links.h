// What is known of workers as candidates for stages: their devices, which other workers they reach,
// the relays for workers that cannot reach each other, and measured rates of links.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "coordinator/state/books/link_book.h"
#include "coordinator/state/books/reach_book.h"
#include "coordinator/state/ledger/ledger.h"
#include "planner/links.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

class WorkerLinks {
 public:
  explicit WorkerLinks(Ledger& ledger);

  // ---- Facts
  // Call Come when a worker has a new session, Leave when its session has ended, and Forget when it
  // has a new process or address or its record is dropped. After Come, the worker and some other
  // workers test whether they reach each other, unless this is known (books/reach_book.h).
  void Come(const Worker& worker);
  void Leave(const WorkerId& id) { reach_.Leave(id); }
  void Forget(const WorkerId& id);
  void OnTried(const WorkerId& from, const v1::ReachTried& tried);
  void CheckTimers();
  MonoTime NextWake() const { return reach_.NextWake(); }
  LinkBook& measured() { return measured_; }
  const LinkBook& measured() const { return measured_; }

  // ---- Candidates
  // Returns all that a plan needs to know of the worker, except layer times and measured links.
  CandidateWorker CandidateOf(const RunSpec& spec, const Worker& worker) const;
  // Returns whether the worker has a device for each rank of a stage (tensor parallelism).
  bool HasDevicesFor(const RunSpec& spec, const Worker& worker) const;
  // Replaces train.dtype auto by bf16 if all these workers compute on GPUs, else by fp32. A run is
  // settled once and keeps the type, even with other workers later.
  void SettleDtype(const std::vector<Worker*>& workers, RunSpec* spec) const;

  // ---- Paths between two workers
  // Returns how the two workers reach each other, or the errors of EndsOf (planner/planner.h).
  StatusOr<LinkEnds> PathBetween(const Run& run, const Worker& from, const Worker& to,
                                 EdgeKind kind = EdgeKind::kState) const;
  // Returns whether these neighbours are still trying to reach each other. Until they have
  // finished, nobody knows which of them dials, or whether they can have a link at all.
  bool IsTrying(const RunSpec& spec, const Worker& upper, const Worker& lower, EdgeKind kind) const;
  // Returns the end of a wait that begins now, in which workers try to reach each other. Drafts and
  // submissions wait no longer, even if a worker keeps coming back.
  MonoTime PatientUntil() const;

  // ---- Relays: the coordinator first, then connected workers
  std::vector<Relay> RelaysNow() const;
  // Returns whether the edge uses relays and none of them is available.
  bool HasLostItsRelays(const Edge& edge) const;
  // Returns a way (transport/relay/ticket.h) for each available relay: its address, and a ticket
  // with which both ends of a link meet there. `link_secret`: of the run or draft. `tag`: the hash
  // of the assignment, or Ledger::DraftTag. `link`: text that is different for each link with this
  // tag. The ticket counts while RelayScopes (planning/relay_scopes.h) names its scope.
  std::vector<std::string> WaysThrough(const std::vector<Relay>& relays,
                                       std::string_view link_secret, std::string_view tag,
                                       std::string_view link) const;
  // Returns the scope of these tickets (transport/relay/ticket.h).
  static std::string ScopeOf(std::string_view link_secret, std::string_view tag);
  // Returns whether this worker has a relay.
  static bool HasRelay(const Worker& worker);

  // ---- For people
  std::vector<v1::RelayStatus> Relays() const;
  // Returns the newest measurements of the links between connected workers. `now` is on the clock
  // of State::Tick, here and in Render.
  std::vector<v1::MeasuredLink> Links(MonoTime now) const;
  // Fills in which workers this worker reaches.
  void Render(const Worker& worker, MonoTime now, v1::WorkerStatus* status) const;
  void CheckInvariants() const { reach_.CheckInvariants(); }

 private:
  // Sends each question to its two workers, and logs the sentences.
  void Carry(const ReachBook::News& news);
  void AddReach(CandidateWorker* worker) const;
  // nullopt: the relay is not available now.
  std::optional<RelayOffer> OfferOf(const Relay& relay) const;

  Ledger& ledger_;
  ReachBook reach_;
  LinkBook measured_;
};

}  // namespace longhaul::coordinator
