// Gets everything that an attempt at a run ("epoch") needs before it trains: the run's text or data
// sets, the initial weights, and the shards of the checkpoint that it resumes from. It reads inputs
// that are on this machine, and fetches the others.
//
// Thread-safe; calls may run concurrently. The calls block. Soon after `cancelled` or `given_up` is
// true they return kCancelled. Other errors: those of the sources (blob_fetcher.h, shard_store.h,
// weights_reader.h), and those of parsing an input.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "longhaul/v1/worker.pb.h"
#include "run/data/data_set.h"
#include "run/file/run_spec.h"
#include "run/plan/plan.h"
#include "run/tokens/sample_text.h"
#include "worker/checkpoint/shard_store.h"
#include "worker/data/window_source.h"
#include "worker/epoch/beside.h"
#include "worker/epoch/resources.h"
#include "worker/pipeline/resident_stage.h"

namespace longhaul::worker {

// Returns the names, lengths and hashes of the files, and which run wrote them. Leaves the other
// fields empty.
std::vector<ShardFile> ShardFilesOf(const std::vector<v1::CheckpointFile>& files);

class EpochInputs {
 public:
  // `resources`, `assignment` and `cell` must outlive this object. Call the methods only if `cell`
  // is a cell of the assignment. `cancelled` is called on the calling threads.
  EpochInputs(const Resources& resources, const Assignment& assignment, const CellId& cell,
              std::function<bool()> cancelled)
      : resources_(resources),
        assignment_(assignment),
        cell_(cell),
        cancelled_(std::move(cancelled)) {}

  // Returns the list of the run's data sets; null if the run reads a token file.
  StatusOr<std::shared_ptr<const data::Mixture>> FetchMixture(const RunSpec& spec) const;
  // Returns the run's text. `mixture`: the result of FetchMixture. A token file is fetched whole;
  // chunks of data sets are fetched later, when they are read.
  StatusOr<std::shared_ptr<WindowSource>> FetchText(const RunSpec& spec,
                                                    std::shared_ptr<const data::Mixture> mixture,
                                                    const GivenUp& given_up) const;
  // Checks that the text has as many windows as the coordinator counted. kDataLoss: the numbers
  // differ.
  Status CheckText(const WindowSource& text, uint32_t context) const;
  // Returns what makes text of the run's tokens; nullopt: nothing is known of the tokens. Logs what
  // goes wrong, because a run trains without this.
  std::optional<SampleText> FetchSampleText(const RunSpec& spec) const;
  // Loads the run's initial weights into a newly made model.
  Status LoadWeights(const RunSpec& spec, Stage& model) const;
  // Reads `files`, which belong to the checkpoint that the attempt begins from, into one snapshot.
  // Files that this worker does not hold are fetched first.
  StatusOr<SharedSnapshot> ReadShards(const std::vector<v1::CheckpointFile>& files,
                                      const GivenUp& given_up) const;

 private:
  const Resources& resources_;
  const Assignment& assignment_;
  const CellId& cell_;
  const std::function<bool()> cancelled_;
};

}  // namespace longhaul::worker
