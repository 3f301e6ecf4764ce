// Makes a WindowSource over a mixture of data sets. Read fetches the chunks that it needs, and
// blocks meanwhile.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/data/set_chunks.h"
#include "worker/data/window_source.h"

namespace longhaul::worker {

struct SetWindowsOptions {
  std::shared_ptr<SetChunks> chunks;  // not null
  uint32_t context = 0;               // tokens of a window
  // The share that is cut off the end of a set without validation text, for validation: 0 to 1.
  double validation_share = 0;
};
// Cannot fail. The result's Read also returns kDataLoss if a token id is not in the set's
// vocabulary.
std::unique_ptr<WindowSource> WindowsOfSets(SetWindowsOptions options);

}  // namespace longhaul::worker
