// The windows of a mixture of data sets, of which chunks are fetched when they are needed.
#ifndef LONGHAUL_WORKER_DATA_SET_WINDOWS_H_
#define LONGHAUL_WORKER_DATA_SET_WINDOWS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/status.h"
#include "run/data/data_set.h"
#include "worker/data/window_source.h"

namespace longhaul::worker {

// The bytes of a chunk of `file`, whose SHA-256 they have. Blocks; ends soon after `given_up` says
// so. Called by several threads.
using FetchChunk = std::function<StatusOr<std::vector<std::byte>>(
    const data::Source& source, const data::HashedFile& file, uint64_t chunk,
    const std::function<bool()>& given_up)>;

struct SetWindowsOptions {
  std::shared_ptr<const data::Mixture> mixture;  // CheckMixture found nothing
  uint32_t context = 0;
  double validation_share = 0;
  uint64_t memory_bytes = 0;  // of chunks
  FetchChunk fetch;
};
// An id beyond the vocabulary is kDataLoss.
std::unique_ptr<WindowSource> WindowsOfSets(SetWindowsOptions options);

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_DATA_SET_WINDOWS_H_
