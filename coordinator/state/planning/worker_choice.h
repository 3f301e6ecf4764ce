// Chooses the workers that a waiting run, or a request to plan, would get now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

// Each choice returns the workers, or kUnavailable with a sentence that names the shortage.
class WorkerChoice {
 public:
  WorkerChoice(Ledger& ledger, const Health& health, const WorkerLinks& links)
      : ledger_(ledger), health_(health), links_(links) {}

  // For a run from scratch.
  StatusOr<Candidates> Any(const RunSpec& spec) const;
  // `resume_step`: the step of the checkpoint to resume from, 0 for none.
  StatusOr<Candidates> For(const RunSpec& spec, const RunRecord& record,
                           uint64_t resume_step) const;
  // Chooses workers for as many of `*replicas` as possible, and lowers the number to that. A run
  // that begins waits for all its replicas. A run that resumes by itself needs as many as it had
  // or, if recovery.replicas says continue, one.
  StatusOr<Candidates> ForAsManyAs(const RunRecord& record, uint64_t step,
                                   uint32_t* replicas) const;

  // Checks that these workers have the devices, and can reach each other over the requested
  // transports, as far as is known; OK if there are no workers yet. kUnavailable if it `may_wait`
  // and some of them are trying to reach each other.
  Status CheckLinks(const RunSpec& spec, const StatusOr<Candidates>& candidates,
                    bool may_wait) const;

 private:
  // Returns free workers; those with a device for each rank of a stage come first. If the plan
  // chooses the number of stages, returns only these, unless there are none: then the plan says
  // what the others lack.
  std::vector<Worker*> FreeFor(const RunSpec& spec) const;
  // In pipeline order, so that shards stay on their workers.
  StatusOr<Candidates> ForResume(const RunSpec& spec, const RunRecord& record,
                                 const v1::CheckpointManifest& manifest) const;
  std::string ShortageSentence(const RunSpec& spec) const;
  // Checks that workers in pipeline order, or the first of them by name, can reach their
  // neighbours.
  Status CheckNeighbours(const RunSpec& spec, const std::vector<Worker*>& workers) const;

  Ledger& ledger_;
  const Health& health_;
  const WorkerLinks& links_;
};

}  // namespace longhaul::coordinator
