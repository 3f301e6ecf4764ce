// Which workers a run that waits, or a request to plan, would get now.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/workers/health.h"
#include "coordinator/state/workers/worker_links.h"

namespace longhaul::coordinator {

// Each choice is the workers, or kUnavailable with the sentence that says what is missing.
class WorkerChoice {
 public:
  WorkerChoice(Ledger& ledger, const Health& health, const WorkerLinks& links)
      : ledger_(ledger), health_(health), links_(links) {}

  // For a run from scratch.
  StatusOr<Candidates> Any(const RunSpec& spec) const;
  // `resume_step`: of the checkpoint that the run goes on from, 0 for none.
  StatusOr<Candidates> For(const RunSpec& spec, const RunRecord& record,
                           uint64_t resume_step) const;
  // For as many of `*replicas` as there are workers; the number is brought down to that. A run that
  // begins waits for all its replicas. One that goes on by itself does with as many as it had or,
  // where recovery.replicas says continue, with one.
  StatusOr<Candidates> ForAsManyAs(const RunRecord& record, uint64_t step,
                                   uint32_t* replicas) const;

  // Whether these workers have the devices, and can talk over the transports that the run asks for,
  // as far as that is known; OK where there are none yet. kUnavailable where it `may_wait` and some
  // of them are trying to reach each other.
  Status CheckLinks(const RunSpec& spec, const StatusOr<Candidates>& candidates,
                    bool may_wait) const;

 private:
  // Workers that have a device for each rank of a stage come first. Where the number of stages is
  // left to the plan these are all, unless there is none: then the plan says what the others lack.
  std::vector<Worker*> FreeFor(const RunSpec& spec) const;
  // In pipeline order, so that shards stay where they are.
  StatusOr<Candidates> ForResume(const RunSpec& spec, const RunRecord& record,
                                 const v1::CheckpointManifest& manifest) const;
  std::string ShortageSentence(const RunSpec& spec) const;
  // Whether workers in pipeline order, or the first of them by name, can talk to their neighbours.
  Status CheckNeighbours(const RunSpec& spec, const std::vector<Worker*>& workers) const;

  Ledger& ledger_;
  const Health& health_;
  const WorkerLinks& links_;
};

}  // namespace longhaul::coordinator
