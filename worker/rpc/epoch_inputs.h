// What an epoch of one cell reads before it trains: the run's text or data sets, the weights that
// the run begins with, and the shards of the checkpoint that it goes on from. From this machine
// where it has them, else from elsewhere.
//
// Thread-safe: calls may run beside each other. All block, and end soon after `cancelled` says so.
#ifndef LONGHAUL_WORKER_RPC_EPOCH_INPUTS_H_
#define LONGHAUL_WORKER_RPC_EPOCH_INPUTS_H_

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
#include "worker/pipeline/resident_stage.h"
#include "worker/rpc/beside.h"
#include "worker/rpc/resources.h"

namespace longhaul::worker {

std::vector<ShardFile> ShardFilesOf(const std::vector<v1::CheckpointFile>& files);

class EpochInputs {
 public:
  // All that is handed over outlives it; `cell` is one of the assignment's, when it is read.
  EpochInputs(const Resources& resources, const Assignment& assignment, const CellId& cell,
              std::function<bool()> cancelled)
      : resources_(resources),
        assignment_(assignment),
        cell_(cell),
        cancelled_(std::move(cancelled)) {}

  // The list of the data sets that the run reads; null where it reads a token file.
  StatusOr<std::shared_ptr<const data::Mixture>> FetchMixture(const RunSpec& spec) const;
  // `mixture`: FetchMixture's.
  StatusOr<std::shared_ptr<WindowSource>> FetchText(const RunSpec& spec,
                                                    std::shared_ptr<const data::Mixture> mixture,
                                                    const GivenUp& given_up) const;
  // What is there is what the coordinator counts with.
  Status CheckText(const WindowSource& text, uint32_t context) const;
  // Gives a model that was made just now the weights that the run begins with.
  Status LoadWeights(const RunSpec& spec, Stage& model) const;
  // `files`: of the checkpoint that the epoch begins from.
  StatusOr<SharedSnapshot> ReadShards(const std::vector<v1::CheckpointFile>& files,
                                      const GivenUp& given_up) const;

 private:
  const Resources& resources_;
  const Assignment& assignment_;
  const CellId& cell_;
  const std::function<bool()> cancelled_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_RPC_EPOCH_INPUTS_H_
