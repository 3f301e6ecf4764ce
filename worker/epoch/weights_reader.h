// Reads a stage's initial parameters from a published model and from adapters of it, one tensor at
// a time. A tensor comes from its folder if this worker has it, else from the coordinator.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/model/family.h"
#include "run/published/weights.h"
#include "worker/epoch/blob_fetcher.h"

namespace longhaul::worker {

class WeightsReader {
 public:
  // Fetches the list of the model's tensors. `spec` must name weights. `blobs` must outlive the
  // result; each fetched tensor is deleted from `blobs` after reading. This call and Read block,
  // pass `deadline` and `cancelled` to BlobFetcher::Fetch, and return the errors of Fetch.
  static StatusOr<WeightsReader> Open(const RunSpec& spec, BlobFetcher* blobs, Deadline deadline,
                                      std::function<bool()> cancelled);

  // Reads the values of `parameter` into `values`, as the callback of Stage::Load must. kDataLoss
  // or kNotFound: neither the folder nor the coordinator has the tensor as it was when the run was
  // submitted.
  Status Read(const model::PlacedParameter& parameter, std::span<float> values);

  // Bytes of the tensors read so far, by source.
  uint64_t bytes_from_folder() const { return bytes_from_folder_; }
  uint64_t bytes_fetched() const { return bytes_fetched_; }

 private:
  WeightsReader(const RunSpec& spec, BlobFetcher* blobs, Deadline deadline,
                std::function<bool()> cancelled);
  StatusOr<std::vector<std::byte>> BytesOf(const published::Tensor& tensor);

  const ModelSpec model_;
  const std::string folder_, adapters_folder_;
  BlobFetcher* const blobs_;
  const Deadline deadline_;
  const std::function<bool()> cancelled_;
  published::Weights weights_;
  // The tensor that was read last: the next parameter may have other rows of it.
  std::string last_name_;
  std::vector<std::byte> last_bytes_;
  uint64_t bytes_from_folder_ = 0, bytes_fetched_ = 0;
};

}  // namespace longhaul::worker
