// Shapes of the tensors that a run sends between its stages.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/ids.h"
#include "codec/codec.h"
#include "run/file/run_spec.h"

namespace longhaul {

// The number of hidden channels in which the ranks of a tensor-parallel group add up their results
// (GroupSpec::shared_channels). In the other channels each rank has values of its own.
inline uint32_t SharedChannels(const ModelSpec& model, const GroupSpec& group) {
  return static_cast<uint32_t>(std::lround(group.shared_channels * model.hidden));
}

// The shape of a microbatch's activation between two stages (forward) or of its gradient
// (backward): samples, tokens, channels. Counts the channels that ranks share once, and the other
// channels once for each rank. With train.dpo an activation has each sample twice: first all
// samples as computed with the adapters, then all as computed without them. The latter have no
// gradient.
inline codec::Shape BoundaryShape(const ModelSpec& model, const TrainSpec& train,
                                  const GroupSpec& group,
                                  Direction direction = Direction::kForward) {
  const uint32_t shared = SharedChannels(model, group);
  const uint32_t copies = train.dpo && direction == Direction::kForward ? 2 : 1;
  return {copies * train.microbatch_size, model.context,
          shared + group.tensor * (model.hidden - shared)};
}
inline codec::Shape BoundaryShape(const RunSpec& spec, Direction direction = Direction::kForward) {
  return BoundaryShape(spec.model, spec.train, spec.group, direction);
}

// The shape of one slice (sequence chunk) of BoundaryShape: what one message carries. `slices` must
// divide the context.
inline codec::Shape SliceShape(const ModelSpec& model, const TrainSpec& train,
                               const GroupSpec& group, uint32_t slices,
                               Direction direction = Direction::kForward) {
  codec::Shape shape = BoundaryShape(model, train, group, direction);
  shape.tokens /= slices;
  return shape;
}
inline codec::Shape SliceShape(const RunSpec& spec, Direction direction = Direction::kForward) {
  return SliceShape(spec.model, spec.train, spec.group, spec.pipeline.SlicesNow(), direction);
}

}  // namespace longhaul
