// Makes a WindowSource over a mixture of data sets. It fetches chunks of the sets when they are
// needed.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/data/set_chunks.h"
#include "worker/data/window_source.h"

namespace longhaul::worker {

struct SetWindowsOptions {
  std::shared_ptr<SetChunks> chunks;
  uint32_t context = 0;         // tokens of a window
  double validation_share = 0;  // part of a set without validation text that is for validation
};
// The result's Read returns kDataLoss if a token id is not in the vocabulary.
std::unique_ptr<WindowSource> WindowsOfSets(SetWindowsOptions options);

}  // namespace longhaul::worker
