// The project's ids (docs/design/folders.md).
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "base/strong.h"

namespace longhaul {

// A run's id as people see it: "<name>-<6 characters>".
using RunId = Strong<struct RunIdTag, std::string>;
// Number of an attempt at a run: one assignment of stages to worker processes. Starts at 1; 0 is
// "none". Not an epoch of the data.
using Epoch = Strong<struct EpochTag, uint64_t>;
// A worker's persistent id (UUID text in its state directory).
using WorkerId = Strong<struct WorkerIdTag, std::string>;
// One start of a worker process (UUID text).
using Incarnation = Strong<struct IncarnationTag, std::string>;
// Position in the pipeline, 0 = the stage that holds the embedding.
using StageIndex = Strong<struct StageIndexTag, uint32_t>;
// Number of an edge of the plan, over which two cells of a run send each other data
// (run/plan/plan.h).
using EdgeId = Strong<struct EdgeIdTag, uint32_t>;

// Optimizer step. The first one is 1; "step 0" is the untrained model.
using Step = Strong<struct StepTag, uint64_t>;
// Number of a microbatch within its global step, from 0.
using Microbatch = Strong<struct MicrobatchTag, uint32_t>;

enum class Direction : uint8_t {
  kForward = 0,   // activations, from stage s to s + 1
  kBackward = 1,  // activation gradients, from stage s + 1 to s
};

// A sequence chunk: consecutive tokens of a microbatch, the unit that stages compute and pass on.
// Every microbatch has the same number of slices (`pipeline.slices`). A microbatch converts to its
// first slice, which is the whole microbatch if there is only one.
struct Slice {
  Microbatch microbatch;
  uint32_t index = 0;  // within the microbatch, in token order

  constexpr Slice() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): where there is one slice they are the same
  constexpr Slice(Microbatch of, uint32_t at = 0) : microbatch(of), index(at) {}
  friend constexpr auto operator<=>(const Slice&, const Slice&) = default;
};

// The order of slices: microbatch by microbatch; forward from the first slice to the last, backward
// from the last to the first, because later tokens attend to earlier ones.
class SliceOrder {
 public:
  constexpr explicit SliceOrder(uint32_t slices) : slices_(slices) {}
  constexpr uint32_t slices() const { return slices_; }  // of a microbatch
  // Number of slices before this one.
  constexpr uint32_t PlaceOf(const Slice& slice, Direction direction) const {
    return slice.microbatch.value() * slices_ + Turned(slice.index, direction);
  }
  constexpr Slice At(uint32_t place, Direction direction) const {
    return {Microbatch(place / slices_), Turned(place % slices_, direction)};
  }

 private:
  constexpr uint32_t Turned(uint32_t index, Direction direction) const {
    return direction == Direction::kForward ? index : slices_ - 1 - index;
  }
  uint32_t slices_;
};

}  // namespace longhaul
