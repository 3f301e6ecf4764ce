#include "worker/stage/passes/slice_turns.h"

#include <fmt/format.h>

namespace longhaul::worker {

std::string SliceTurns::NameOf(Slice slice) const {
  const std::string microbatch = fmt::format("microbatch {}", slice.microbatch.value());
  if (order_.slices() == 1 && slice.index == 0) return microbatch;
  return fmt::format("slice {} of {}", slice.index, microbatch);
}

Status SliceTurns::CheckForward(Slice slice) const {
  if (pending_.contains(slice)) {
    return InvalidArgument("{} has run forward already", NameOf(slice));
  }
  if (slice.index >= order_.slices()) {
    return InvalidArgument("expected slices 0 to {} of each microbatch; came {}",
                           order_.slices() - 1, NameOf(slice));
  }
  if (slice.index == 0 || pending_.contains({slice.microbatch, slice.index - 1})) {
    return absl::OkStatus();
  }
  return InvalidArgument("{} came forward before the slice that precedes it", NameOf(slice));
}

// The order in which gradients are summed is part of the result.
Status SliceTurns::CheckBackward(Slice slice) const {
  if (!pending_.contains(slice)) {
    return InvalidArgument("{} has not run forward", NameOf(slice));
  }
  const bool of_later = !last_backward_ || slice.microbatch > last_backward_->microbatch;
  const bool begins = of_later && slice.index + 1 == order_.slices();
  if (begins || last_backward_ == Slice(slice.microbatch, slice.index + 1)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      of_later ? fmt::format("backward of {} came before that of the slice that follows it",
                             NameOf(slice))
               : fmt::format("backward of {} came after that of {}", NameOf(slice),
                             NameOf(*last_backward_)));
}

Status SliceTurns::CheckEvaluation(Slice slice) const {
  if (slice.index == 0 || slice.index == next_evaluated_) return absl::OkStatus();
  return InvalidArgument("{} came to be evaluated before the slice that precedes it",
                         NameOf(slice));
}

void SliceTurns::TakeBackward(Slice slice) {
  pending_.erase(slice);
  last_backward_ = slice;
}

void SliceTurns::EndStep() {
  pending_.clear();
  last_backward_.reset();
}

}  // namespace longhaul::worker
