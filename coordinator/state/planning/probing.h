// Before a plan is made the workers of its edges measure the links between them: goodput both ways,
// and round trips. ProbeRounds says which edges are measured when; Probing asks both ends and keeps
// their answers.
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

  // Begins the measurement where that is not done. False: answers are awaited.
  bool AreMeasured(Draft& draft);
  // The plan uses links that are to be measured first, after which it is made again.
  bool SurveyGoesOn(Draft& draft);
  // An end of a link has answered. False: the answer was not awaited.
  bool OnAnswer(const Worker& worker, Draft& draft, const v1::LinkProbed& answer);
  // The worker has a new session: it hears again what it was asked for.
  void Repeat(const Worker& worker, const Draft& draft);
  // Gives up what has not been answered in time.
  void GiveUp(Draft& draft);
  // The workers of a draft with their devices and the links that were measured.
  std::vector<CandidateWorker> CandidatesOf(const Draft& draft) const;

 private:
  void BeginRound(Draft& draft);
  void Send(const Worker& worker, const Draft& draft, const Probe& probe);
  // Keeps what was measured, or logs that it could not be.
  void Note(Draft& draft, const Probe& probe);
  void AddMeasured(const Draft& draft, CandidateWorker* worker) const;

  Ledger& ledger_;
  WorkerLinks& links_;
  uint64_t next_probe_ = 1;
};

}  // namespace longhaul::coordinator
