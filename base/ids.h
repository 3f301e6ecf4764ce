// The project's ids (docs/design/folders.md).
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "base/strong.h"

namespace longhaul {

// A run's id as people see it: "<name>-<6 characters>".
using RunId = Strong<struct RunIdTag, std::string>;
// The number of an attempt at a run, from 1; 0 is "none". An attempt is one assignment of stages to
// worker processes. An Epoch is not a pass over the data.
using Epoch = Strong<struct EpochTag, uint64_t>;
// Names an assignment of a run's stages to workers: the first 8 bytes of its hash, as a
// little-endian number. Two assignments have different stamps even if two coordinators gave them
// the same epoch, so links, frames, commands and reports of different assignments cannot mix. 0:
// none.
using Stamp = Strong<struct StampTag, uint64_t>;
// 16 random bytes that a coordinator's process makes when it asks to lead. Tells two processes
// apart that claim the same term, for example after a disk was copied.
using Tenure = Strong<struct TenureTag, std::string>;
// A worker's persistent id (UUID text in its state directory).
using WorkerId = Strong<struct WorkerIdTag, std::string>;
// One start of a worker process (UUID text).
using Incarnation = Strong<struct IncarnationTag, std::string>;
// Position in the pipeline, 0 = the stage that holds the embedding.
using StageIndex = Strong<struct StageIndexTag, uint32_t>;
// The number of an edge of the plan (run/plan/plan.h). Two cells of a run send each other data over
// an edge. A cell is one stage of one data-parallel replica.
using EdgeId = Strong<struct EdgeIdTag, uint32_t>;

// Optimizer step. The first one is 1; "step 0" is the untrained model.
using Step = Strong<struct StepTag, uint64_t>;
// Number of a microbatch within one optimizer step of its data-parallel replica, from 0.
using Microbatch = Strong<struct MicrobatchTag, uint32_t>;

enum class Direction : uint8_t {
  kForward = 0,   // activations, from stage s to s + 1
  kBackward = 1,  // activation gradients, from stage s + 1 to s
};

// A part of a microbatch (a sequence chunk): consecutive tokens of its sequences. Stages compute
// and pass on one slice at a time. Every microbatch has the same number of slices, set by
// `pipeline.slices` of the run file. A Microbatch converts to its first slice, which is the whole
// microbatch if there is only one slice.
struct Slice {
  Microbatch microbatch;
  uint32_t index = 0;  // within the microbatch, in token order

  constexpr Slice() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): with one slice, both are the same
  constexpr Slice(Microbatch of, uint32_t at = 0) : microbatch(of), index(at) {}
  friend constexpr auto operator<=>(const Slice&, const Slice&) = default;
};

// The order in which slices are computed: microbatch by microbatch. Within a microbatch, the
// forward pass goes from the first slice to the last. The backward pass goes from the last to the
// first, because later tokens attend to earlier ones.
class SliceOrder {
 public:
  constexpr explicit SliceOrder(uint32_t slices) : slices_(slices) {}
  constexpr uint32_t slices() const { return slices_; }  // of a microbatch
  // Returns the number of slices of a step that come before `slice` in passes of `direction`.
  constexpr uint32_t PlaceOf(const Slice& slice, Direction direction) const {
    return slice.microbatch.value() * slices_ + Turned(slice.index, direction);
  }
  // The inverse of PlaceOf.
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
