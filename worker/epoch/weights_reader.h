// Reads a stage's initial parameters from a published model and from adapters of it, one tensor at
// a time. A tensor of a model at an address comes from there. Another one comes from its folder if
// this worker has it, else from the coordinator.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/remote/store.h"
#include "base/root_folders.h"
#include "base/status.h"
#include "run/file/run_spec.h"
#include "run/model/family.h"
#include "run/published/remote/remote_folder.h"
#include "run/published/weights.h"
#include "worker/epoch/blob_fetcher.h"

namespace longhaul::worker {

class WeightsReader {
 public:
  // Fetches the list of the model's tensors. `spec` must name weights. `blobs` must outlive the
  // result; the list and each tensor that is fetched are deleted from `blobs` after reading.
  // `roots`: the folders of this machine that may be read, which must outlive the result; null:
  // none. `objects` may be null: then models at addresses are refused. This call and Read block,
  // pass `deadline` and `cancelled` to BlobFetcher::Fetch and to the store, and return their
  // errors. kInvalidArgument: the list is of another model than spec.weights.from.
  static StatusOr<WeightsReader> Open(const RunSpec& spec, const RootFolders* roots,
                                      BlobFetcher* blobs,
                                      std::shared_ptr<const remote::Store> objects,
                                      Deadline deadline, std::function<bool()> cancelled);

  // Reads the values of `parameter` into `values`, as the callback of Stage::Load must. kDataLoss
  // or kNotFound: neither the folder nor the coordinator has the tensor as it was when the run was
  // submitted, nor has the address.
  Status Read(const model::PlacedParameter& parameter, std::span<float> values);

  // Bytes of the tensors read so far, by source.
  uint64_t bytes_from_folder() const { return bytes_from_folder_; }
  uint64_t bytes_fetched() const { return bytes_fetched_; }
  uint64_t bytes_from_address() const { return bytes_from_address_; }

 private:
  WeightsReader(const RunSpec& spec, const RootFolders* roots, BlobFetcher* blobs,
                Deadline deadline, std::function<bool()> cancelled);
  StatusOr<std::vector<std::byte>> FromFolder(const published::Tensor& tensor) const;
  StatusOr<std::vector<std::byte>> BytesOf(const published::Tensor& tensor);
  StatusOr<std::vector<std::byte>> FromAddress(const published::Tensor& tensor);

  const ModelSpec model_;
  const std::string folder_, adapters_folder_;
  const RootFolders* const roots_;
  BlobFetcher* const blobs_;
  const Deadline deadline_;
  const std::function<bool()> cancelled_;
  published::Weights weights_;
  // Both are set if the model is at an address.
  std::shared_ptr<const remote::Store> objects_;
  std::optional<published::RemoteTensors> remote_;
  // The tensor that was read last: the next parameter may have other rows of it.
  std::string last_name_;
  std::vector<std::byte> last_bytes_;
  uint64_t bytes_from_folder_ = 0, bytes_fetched_ = 0, bytes_from_address_ = 0;
};

}  // namespace longhaul::worker
