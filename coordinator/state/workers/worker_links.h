// What is known of workers as candidates for stages: their devices, whom they reach, who carries
// links between workers that do not reach each other, and how fast links are.
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
  // A worker has a new session: it and the others try what is not known yet.
  void Come(const Worker& worker);
  void Leave(const WorkerId& id) { reach_.Leave(id); }
  // The worker is another process, is reached elsewhere, or is not known any more.
  void Forget(const WorkerId& id);
  void OnTried(const WorkerId& from, const v1::ReachTried& tried);
  void CheckTimers();
  MonoTime NextWake() const { return reach_.NextWake(); }
  LinkBook& measured() { return measured_; }
  const LinkBook& measured() const { return measured_; }

  // ---- Candidates
  // Without its layer times and measured links.
  CandidateWorker CandidateOf(const RunSpec& spec, const Worker& worker) const;
  // Whether the worker has a device for each rank of a stage.
  bool HasDevicesFor(const RunSpec& spec, const Worker& worker) const;
  // Gives train.dtype: auto the type that these workers' products are computed in. A run is settled
  // once and keeps the type, whichever workers it has later.
  void SettleDtype(const std::vector<Worker*>& workers, RunSpec* spec) const;

  // ---- Paths between two workers
  StatusOr<LinkEnds> PathBetween(const Run& run, const Worker& from, const Worker& to,
                                 EdgeKind kind = EdgeKind::kState) const;
  // Whether an answer is under way that says which of two neighbours dials, or that they are cut
  // off.
  bool IsTrying(const RunSpec& spec, const Worker& upper, const Worker& lower, EdgeKind kind) const;
  // When the patience of a draft or a submission that begins to wait now ends. A worker that keeps
  // coming back does not prolong the wait.
  MonoTime PatientUntil() const;

  // ---- Relays: the coordinator first, then connected workers
  std::vector<Relay> RelaysNow() const;
  // The edge went through relays, and all of them are gone.
  bool HasLostItsRelays(const Edge& edge) const;
  // Where both ends of a link meet, at those relays that are there. Nobody can guess the name under
  // which they meet without the secret.
  std::vector<std::string> WaysThrough(const std::vector<Relay>& relays,
                                       std::string_view link_secret, std::string_view link) const;

  // ---- What people see
  std::vector<v1::RelayStatus> Relays() const;
  // The newest measurements between connected workers.
  std::vector<v1::MeasuredLink> Links(MonoTime now) const;
  void Render(const Worker& worker, MonoTime now, v1::WorkerStatus* status) const;
  void CheckInvariants() const { reach_.CheckInvariants(); }

 private:
  // Asks both ends of each question and logs the sentences.
  void Carry(const ReachBook::News& news);
  void AddReach(CandidateWorker* worker) const;
  // nullopt: the relay carries no links now.
  std::optional<RelayOffer> OfferOf(const Relay& relay) const;

  Ledger& ledger_;
  ReachBook reach_;
  LinkBook measured_;
};

}  // namespace longhaul::coordinator
