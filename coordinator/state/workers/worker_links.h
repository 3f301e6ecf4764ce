// What is known of workers as candidates for stages: their devices, the workers that they reach,
// relays between workers that cannot reach each other, and rates of links.
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
  // A worker has a new session: it and other workers try connections whose state is unknown.
  void Come(const Worker& worker);
  void Leave(const WorkerId& id) { reach_.Leave(id); }
  // The worker has a new process or address, or is no longer known.
  void Forget(const WorkerId& id);
  void OnTried(const WorkerId& from, const v1::ReachTried& tried);
  void CheckTimers();
  MonoTime NextWake() const { return reach_.NextWake(); }
  LinkBook& measured() { return measured_; }
  const LinkBook& measured() const { return measured_; }

  // ---- Candidates
  // Returns all that a plan needs to know of the worker, except layer times and measured links.
  CandidateWorker CandidateOf(const RunSpec& spec, const Worker& worker) const;
  // Returns whether the worker has a device for each rank of a stage.
  bool HasDevicesFor(const RunSpec& spec, const Worker& worker) const;
  // Replaces train.dtype auto by bf16 if all these workers compute on GPUs, else by fp32. A run is
  // settled once and keeps the type, even with other workers later.
  void SettleDtype(const std::vector<Worker*>& workers, RunSpec* spec) const;

  // ---- Paths between two workers
  // Returns how the two workers reach each other, or the errors of EndsOf (planner/planner.h).
  StatusOr<LinkEnds> PathBetween(const Run& run, const Worker& from, const Worker& to,
                                 EdgeKind kind = EdgeKind::kState) const;
  // Returns whether these neighbours are still trying to reach each other, so that it is open which
  // one dials, or whether they can have a link at all.
  bool IsTrying(const RunSpec& spec, const Worker& upper, const Worker& lower, EdgeKind kind) const;
  // Returns until when a draft or submission that begins to wait now waits for workers that try to
  // reach each other. A worker that keeps coming back does not prolong the wait.
  MonoTime PatientUntil() const;

  // ---- Relays: the coordinator first, then connected workers
  std::vector<Relay> RelaysNow() const;
  // Returns whether the edge uses relays and all of them are gone.
  bool HasLostItsRelays(const Edge& edge) const;
  // Returns, for each of these relays that is available, its address with a ticket by which both
  // ends of a link meet there (transport/relay/ticket.h).
  std::vector<std::string> WaysThrough(const std::vector<Relay>& relays,
                                       std::string_view link_secret, std::string_view link) const;

  // ---- For people
  std::vector<v1::RelayStatus> Relays() const;
  // Returns the newest measurements of the links between connected workers.
  std::vector<v1::MeasuredLink> Links(MonoTime now) const;
  void Render(const Worker& worker, MonoTime now, v1::WorkerStatus* status) const;
  void CheckInvariants() const { reach_.CheckInvariants(); }

 private:
  // Asks both workers of each question, and logs the sentences.
  void Carry(const ReachBook::News& news);
  void AddReach(CandidateWorker* worker) const;
  // nullopt: the relay is not available now.
  std::optional<RelayOffer> OfferOf(const Relay& relay) const;

  Ledger& ledger_;
  ReachBook reach_;
  LinkBook measured_;
};

}  // namespace longhaul::coordinator
