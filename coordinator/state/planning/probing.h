// Makes workers measure the links between them before a plan is made: the goodput of each
// direction, and round trips. ProbeRounds says which links are measured at the same time. A probe
// is the request to both ends of a link to measure it (books/probe_rounds.h).
#pragma once

#include <cstdint>
#include <vector>

#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/planning/draft.h"
#include "coordinator/state/workers/worker_links.h"
#include "planner/planner.h"

namespace longhaul::coordinator {

class Probing {
 public:
  Probing(Ledger& ledger, WorkerLinks& links) : ledger_(ledger), links_(links) {}

  // Begins the measurements that are still missing. True: none is left, or their time is over.
  // False: answers are awaited; call AreMeasured again after each answer.
  bool AreMeasured(Draft& draft);
  // Looks at the links of draft.plan, which must be set. True: some links must be measured first,
  // and then the plan must be made again.
  bool SurveyGoesOn(Draft& draft);
  // Takes the answer of one end of a link. False: the answer was not awaited.
  bool OnAnswer(const Worker& worker, Draft& draft, const v1::LinkProbed& answer);
  // Repeats the worker's questions, because it has a new session.
  void Repeat(const Worker& worker, const Draft& draft);
  // Gives up probes that were not answered in time.
  void GiveUp(Draft& draft);
  // Returns the workers of a draft, in its order, with their devices and the measured links, but
  // without layer times.
  std::vector<CandidateWorker> CandidatesOf(const Draft& draft) const;

 private:
  void BeginRound(Draft& draft);
  void Send(const Worker& worker, const Draft& draft, const Probe& probe);
  // Keeps the result, or logs that the link could not be measured.
  void Note(Draft& draft, const Probe& probe);
  void AddMeasured(const Draft& draft, CandidateWorker* worker) const;

  Ledger& ledger_;
  WorkerLinks& links_;
  uint64_t next_probe_ = 1;
};

}  // namespace longhaul::coordinator
