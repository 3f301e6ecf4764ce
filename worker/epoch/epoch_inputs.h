// Gets everything that an attempt at a run ("epoch") reads before it trains: the run's text or data
// sets, the initial weights, and the shards of the checkpoint that it resumes from. Reads them from
// this machine if possible, else from elsewhere.
//
// Thread-safe; calls may run concurrently. All calls block, and return soon after `cancelled` is
// true.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/data/data_set.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "worker/checkpoint/shard_store.h"
#include "worker/data/window_source.h"
#include "worker/epoch/beside.h"
#include "worker/epoch/resources.h"
#include "worker/pipeline/resident_stage.h"

namespace longhaul::worker {

std::vector<ShardFile> ShardFilesOf(const std::vector<v1::CheckpointFile>& files);

class EpochInputs {
 public:
  // All arguments outlive this object. `cell` is read later and must then be a cell of the
  // assignment.
  EpochInputs(const Resources& resources, const Assignment& assignment, const CellId& cell,
              std::function<bool()> cancelled)
      : resources_(resources),
        assignment_(assignment),
        cell_(cell),
        cancelled_(std::move(cancelled)) {}

  // Returns the list of the run's data sets; null if the run reads a token file.
  StatusOr<std::shared_ptr<const data::Mixture>> FetchMixture(const RunSpec& spec) const;
  // `mixture`: from FetchMixture.
  StatusOr<std::shared_ptr<WindowSource>> FetchText(const RunSpec& spec,
                                                    std::shared_ptr<const data::Mixture> mixture,
                                                    const GivenUp& given_up) const;
  // Checks that the text has as many windows as the coordinator counted.
  Status CheckText(const WindowSource& text, uint32_t context) const;
  // Loads the run's initial weights into a newly made model.
  Status LoadWeights(const RunSpec& spec, Stage& model) const;
  // `files`: the files of the checkpoint that the attempt begins from.
  StatusOr<SharedSnapshot> ReadShards(const std::vector<v1::CheckpointFile>& files,
                                      const GivenUp& given_up) const;

 private:
  const Resources& resources_;
  const Assignment& assignment_;
  const CellId& cell_;
  const std::function<bool()> cancelled_;
};

}  // namespace longhaul::worker
