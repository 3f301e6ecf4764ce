#include "transport/replicas/traffic.h"

#include <algorithm>
#include <vector>

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

// Bytes of the owner's union for a contributor. With two replicas it has no bitmap.
uint64_t UnionBytesOf(const Shard& shard, uint32_t replicas) {
  return kMessageHeaderBytes + kUnionFixedBytes +
         (replicas > 2 ? (shard.positions + 63) / 64 * 8 : 0);
}

// What goes to the owner of these shards from each other replica.
uint64_t GradientsTo(const Layout& layout, uint32_t owner) {
  const LayoutOptions& options = layout.options();
  uint64_t bytes = 0;
  for (const Bucket& bucket : layout.buckets()) {
    const Shard& shard = bucket.shards[owner];
    if (!shard.dense.empty()) {
      bytes += kMessageHeaderBytes + GradientBytes(DenseForm(options.gradients), shard.dense);
    }
    if (!shard.sparse.empty()) {
      bytes += SparseBytes(shard, options.gradients.keep, options.replicas);
    }
  }
  return bytes;
}

// What the owner of these shards sends each other replica.
ExchangeTraffic SentBy(const Layout& layout, uint32_t owner) {
  const LayoutOptions& options = layout.options();
  ExchangeTraffic traffic;
  for (const Bucket& bucket : layout.buckets()) {
    const Shard& shard = bucket.shards[owner];
    if (!shard.sparse.empty()) traffic.gradients += UnionBytesOf(shard, options.replicas);
    if (shard.empty()) continue;
    traffic.parameters += kMessageHeaderBytes + ParameterBytes(options.parameters, shard.pieces());
  }
  return traffic;
}

}  // namespace

ExchangeTraffic UsualTraffic(const Layout& layout, uint32_t from, uint32_t to) {
  ExchangeTraffic traffic = SentBy(layout, from);
  traffic.gradients += GradientsTo(layout, to);
  return traffic;
}

uint64_t LargestUsualTraffic(const Layout& layout) {
  const uint32_t replicas = layout.options().replicas;
  std::vector<uint64_t> gradients;
  for (uint32_t to = 0; to < replicas; ++to) gradients.push_back(GradientsTo(layout, to));
  uint64_t most = 0;
  for (uint32_t from = 0; from < replicas; ++from) {
    const uint64_t own = SentBy(layout, from).total();
    for (uint32_t to = 0; to < replicas; ++to) {
      if (to != from) most = std::max(most, own + gradients[to]);
    }
  }
  return most;
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
