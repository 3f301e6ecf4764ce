#include "run/boundary/carried_tokens.h"

#include <algorithm>

#include "codec/predict/format.h"

namespace longhaul {

namespace format = codec::predict;

bool CarriesTokens(const Assignment& assignment, const Edge& edge) {
  if (edge.kind != EdgeKind::kActivations || edge.forward.codec.predicts_by_tokens()) return false;
  return std::ranges::any_of(assignment.edges, [&](const Edge& other) {
    return other.kind == EdgeKind::kActivations && other.from.replica == edge.from.replica &&
           other.from.stage > edge.from.stage && other.forward.codec.predicts_by_tokens();
  });
}

size_t CarriedBytes(const codec::Shape& shape, uint32_t vocabulary) {
  return format::OtherOffset(shape, format::BytesOfId(vocabulary)) - format::kFrontBytes;
}

void WriteCarried(std::span<const uint32_t> ids, uint32_t vocabulary, std::span<std::byte> behind) {
  format::WriteIds(ids, format::BytesOfId(vocabulary), behind.data());
}

StatusOr<std::vector<uint32_t>> ReadCarried(std::span<const std::byte> behind,
                                            const codec::Shape& shape, uint32_t vocabulary) {
  if (behind.size() != CarriedBytes(shape, vocabulary)) {
    return InvalidArgument("expected {} bytes of token ids behind an activation, got {}",
                           CarriedBytes(shape, vocabulary), behind.size());
  }
  std::vector<uint32_t> ids(uint64_t{shape.samples} * shape.tokens);
  for (uint64_t i = 0; i < ids.size(); ++i) {
    ids[i] = format::IdAt(behind.data(), format::BytesOfId(vocabulary), i);
    if (ids[i] >= vocabulary) {
      return InvalidArgument("expected token ids below {} behind an activation, got {}", vocabulary,
                             ids[i]);
    }
  }
  return ids;
}

}  // namespace longhaul
