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

// Any, For and ForAsManyAs return free workers, or kUnavailable with a sentence for people about
// the shortage.
class WorkerChoice {
 public:
  WorkerChoice(Ledger& ledger, const Health& health, const WorkerLinks& links)
      : ledger_(ledger), health_(health), links_(links) {}

  // Chooses workers for a run from scratch.
  StatusOr<Candidates> Any(const RunSpec& spec) const;
  // Chooses workers for a run that resumes from the checkpoint of `resume_step`; 0: from scratch.
  StatusOr<Candidates> For(const RunSpec& spec, const RunRecord& record,
                           uint64_t resume_step) const;
  // Chooses workers for `*replicas` data-parallel replicas, else for as many as possible, and sets
  // `*replicas` to the number. A run that a user has just submitted or resumed needs workers for
  // all replicas. A run that resumes by itself needs workers for as many replicas as wrote the
  // checkpoint of `step` or, if recovery.replicas is continue, for one. After an error `*replicas`
  // has no meaning.
  StatusOr<Candidates> ForAsManyAs(const RunRecord& record, uint64_t step,
                                   uint32_t* replicas) const;

  // Checks that these workers have the devices that the run needs, and can reach each other over
  // the requested transports, as far as is known. Returns OK if `candidates` is an error, because
  // the run then waits in the queue. kUnavailable, only if `may_wait`: some of the workers are
  // still trying to reach each other. Other errors: those of CheckDevices and EndsOf
  // (planner/planner.h).
  Status CheckLinks(const RunSpec& spec, const StatusOr<Candidates>& candidates,
                    bool may_wait) const;

 private:
  // Returns the free workers, first those with a device for each rank of a stage. Leaves out the
  // others if the run file leaves the number of stages open. But if no worker has the devices,
  // returns all, so that the planner's error says what is missing.
  std::vector<Worker*> FreeFor(const RunSpec& spec) const;
  // Returns workers in pipeline order, so that shards stay on their workers.
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
