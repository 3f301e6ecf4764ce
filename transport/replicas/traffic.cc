#include "transport/replicas/traffic.h"

#include "transport/replicas/dense.h"
#include "transport/replicas/message.h"
#include "transport/replicas/sparse.h"

namespace longhaul::replicas {
namespace {

// Cells of a sketch for each position in it, a little above the least that can be peeled.
constexpr double kCellsOfAPosition = 1.25;
constexpr uint64_t kCellBytes = 4;

uint64_t SparseBytes(const Shard& shard, double keep, uint32_t replicas) {
  uint64_t kept = 0;
  for (const Piece& piece : shard.sparse) kept += Kept(piece, keep);
  const auto cells = static_cast<uint64_t>(kCellsOfAPosition * static_cast<double>(kept) *
                                           static_cast<double>(replicas - 1));
  return 2 * kMessageHeaderBytes + IndexBytes(shard.positions) + cells * kCellBytes;
}

// Of the owner to one who contributes. With two replicas it has no bitmap.
uint64_t UnionBytesOf(const Shard& shard, uint32_t replicas) {
  return kMessageHeaderBytes + kUnionFixedBytes +
         (replicas > 2 ? (shard.positions + 63) / 64 * 8 : 0);
}

}  // namespace

ExchangeTraffic UsualTraffic(const Layout& layout, uint32_t from, uint32_t to) {
  const LayoutOptions& options = layout.options();
  ExchangeTraffic traffic;
  for (const Bucket& bucket : layout.buckets()) {
    const Shard &theirs = bucket.shards[to], &own = bucket.shards[from];
    if (!theirs.dense.empty()) {
      traffic.gradients +=
          kMessageHeaderBytes + GradientBytes(DenseForm(options.gradients), theirs.dense);
    }
    if (!theirs.sparse.empty()) {
      traffic.gradients += SparseBytes(theirs, options.gradients.keep, options.replicas);
    }
    if (!own.sparse.empty()) traffic.gradients += UnionBytesOf(own, options.replicas);
    if (own.empty()) continue;
    traffic.parameters += kMessageHeaderBytes + ParameterBytes(options.parameters, own.pieces());
  }
  return traffic;
}

uint32_t MessagesOfSum(const GradientOptions& gradients) {
  constexpr uint32_t kIndexUnionSketch = 3;
  return gradients.form == GradientForm::kTagc ? kIndexUnionSketch : 1;
}

uint32_t MessagesOfExchange(const GradientOptions& gradients) {
  constexpr uint32_t kNormAndParameters = 3;
  return MessagesOfSum(gradients) + kNormAndParameters;
}

}  // namespace longhaul::replicas
