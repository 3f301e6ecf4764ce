// The body of the two control messages between stages, after their tensor header: 16 bytes,
// little-endian.
//
//   offset size  field
//        0    8  squared_norm   float64: running (kNormUp) or final (kStepControl) sum of squared
//                               gradients
//        8    4  flags          kStepControl: bit 1 stop after this step, bit 2 the norm is not
//                               finite (no optimizer step; the run ends, or trains on, as
//                               train.on_nonfinite says); all others zero
//       12    4  reserved, zero
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/status.h"

namespace longhaul::wire {

inline constexpr size_t kStepMessageBytes = 16;

struct StepMessage {
  double squared_norm = 0;
  bool stop = false;
  bool nonfinite = false;
  friend bool operator==(const StepMessage&, const StepMessage&) = default;
};

inline void EncodeStepMessage(const StepMessage& message,
                              std::span<std::byte, kStepMessageBytes> out) {
  static_assert(std::endian::native == std::endian::little);
  const uint32_t flags = (message.stop ? 2u : 0u) | (message.nonfinite ? 4u : 0u);
  const uint32_t reserved = 0;
  std::memcpy(out.data(), &message.squared_norm, 8);
  std::memcpy(out.data() + 8, &flags, 4);
  std::memcpy(out.data() + 12, &reserved, 4);
}

inline StatusOr<StepMessage> DecodeStepMessage(std::span<const std::byte> bytes) {
  if (bytes.size() != kStepMessageBytes) {
    return absl::InvalidArgumentError("step message: expected 16 bytes, got " +
                                      std::to_string(bytes.size()));
  }
  StepMessage message;
  uint32_t flags = 0;
  uint32_t reserved = 0;
  std::memcpy(&message.squared_norm, bytes.data(), 8);
  std::memcpy(&flags, bytes.data() + 8, 4);
  std::memcpy(&reserved, bytes.data() + 12, 4);
  if ((flags & ~6u) != 0 || reserved != 0) {
    return absl::InvalidArgumentError(
        "step message: unknown flags; the peer is of another version");
  }
  message.stop = (flags & 2) != 0;
  message.nonfinite = (flags & 4) != 0;
  return message;
}

}  // namespace longhaul::wire
