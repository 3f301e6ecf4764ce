#include "worker/pipeline/token_ids.h"

#include <algorithm>
#include <iterator>

namespace longhaul::worker {

std::vector<uint32_t> TokenIds(std::span<const int32_t> tokens, const RunSpec& spec, Slice slice) {
  const size_t context = spec.model.context, length = context / spec.pipeline.SlicesNow();
  std::vector<uint32_t> ids;
  for (size_t first = slice.index * length; first < tokens.size(); first += context) {
    const auto of_sample = tokens.subspan(first, length);
    ids.insert(ids.end(), of_sample.begin(), of_sample.end());
  }
  if (!spec.train.dpo) return ids;
  // The same samples follow as they are without adapters.
  const size_t count = ids.size();
  ids.reserve(2 * count);
  std::copy_n(ids.begin(), count, std::back_inserter(ids));
  return ids;
}

Status CheckTokens(const std::vector<uint32_t>& came, const std::vector<uint32_t>& read) {
  if (came == read) return absl::OkStatus();
  return InvalidArgument(
      "expected an activation of the tokens that this stage reads; the stage above has others from "
      "place {} on",
      std::ranges::mismatch(came, read).in1 - came.begin());
}

}  // namespace longhaul::worker
