// The body of the control messages by which all stages agree on a step's gradient norm. A stage
// adds its part to the sum of the later stages, and sends the sum to the previous stage (kNormUp).
// The first stage decides, and its decision goes from stage to stage (kStepControl). Data-parallel
// replicas agree with replica 0 by the same messages. The body follows a tensor header
// (tensor_header.h): 16 bytes, little-endian.
//
//   offset size  field
//        0    8  squared_norm   float64: running (kNormUp) or final (kStepControl) sum of squared
//                               gradients
//        8    4  flags          of kStepControl. Value 2: stop after this step. Value 4: the norm
//                               is not finite, so there is no optimizer step, and the key
//                               train.on_nonfinite decides whether the run ends. All other bits
//                               are zero
//       12    4  samples        of kStepControl: rounds of samples that were asked for, which
//       follow
//                               this step or, where the next one has begun, that one
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "proto/wire/little_endian.h"

namespace longhaul::wire {

inline constexpr size_t kStepMessageBytes = 16;
inline constexpr uint32_t kMostSampleRounds = 4;  // asked for, after one step

struct StepMessage {
  double squared_norm = 0;
  bool stop = false;
  bool nonfinite = false;
  uint32_t samples = 0;  // at most kMostSampleRounds
  friend bool operator==(const StepMessage&, const StepMessage&) = default;
};

inline void EncodeStepMessage(const StepMessage& message,
                              std::span<std::byte, kStepMessageBytes> out) {
  PutLe(out, 0, std::bit_cast<uint64_t>(message.squared_norm));
  PutLe(out, 8, (message.stop ? 2u : 0u) | (message.nonfinite ? 4u : 0u));
  PutLe(out, 12, message.samples);
}

// kInvalidArgument: not 16 bytes, or unknown flags.
inline StatusOr<StepMessage> DecodeStepMessage(std::span<const std::byte> bytes) {
  if (bytes.size() != kStepMessageBytes) {
    return InvalidArgument("step message: expected 16 bytes, got {}", bytes.size());
  }
  const auto flags = GetLe<uint32_t>(bytes, 8);
  const auto samples = GetLe<uint32_t>(bytes, 12);
  if ((flags & ~6u) != 0 || samples > kMostSampleRounds) {
    return absl::InvalidArgumentError(
        "step message: unknown flags; the peer is of another version");
  }
  return StepMessage{.squared_norm = std::bit_cast<double>(GetLe<uint64_t>(bytes, 0)),
                     .stop = (flags & 2) != 0,
                     .nonfinite = (flags & 4) != 0,
                     .samples = samples};
}

}  // namespace longhaul::wire
