// A WindowSource over a mixture of data sets, whose chunks are fetched when needed.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/data/set_chunks.h"
#include "worker/data/window_source.h"

namespace longhaul::worker {

struct SetWindowsOptions {
  std::shared_ptr<SetChunks> chunks;
  uint32_t context = 0;
  double validation_share = 0;
};
// Read returns kDataLoss for a token id beyond the vocabulary.
std::unique_ptr<WindowSource> WindowsOfSets(SetWindowsOptions options);

}  // namespace longhaul::worker
