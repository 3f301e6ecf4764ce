// What two neighbours tell each other before the first tensor if a codec of their edge remembers
// samples: digests of what each side remembers. It follows a tensor header of kind kMessageState:
// 16 bytes, little-endian.
//
//   offset size  field
//        0    8  forward    digest of the activations' messages, 0 for none
//        8    8  backward   of the gradients'
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

#include "base/status.h"

namespace longhaul::wire {

inline constexpr size_t kMessageStateBytes = 16;

struct MessageState {
  uint64_t forward = 0, backward = 0;
  friend bool operator==(const MessageState&, const MessageState&) = default;
};

inline void EncodeMessageState(const MessageState& state,
                               std::span<std::byte, kMessageStateBytes> out) {
  static_assert(std::endian::native == std::endian::little);
  std::memcpy(out.data(), &state.forward, 8);
  std::memcpy(out.data() + 8, &state.backward, 8);
}

inline StatusOr<MessageState> DecodeMessageState(std::span<const std::byte> bytes) {
  if (bytes.size() != kMessageStateBytes) {
    return absl::InvalidArgumentError("message state: expected 16 bytes, got " +
                                      std::to_string(bytes.size()));
  }
  MessageState state;
  std::memcpy(&state.forward, bytes.data(), 8);
  std::memcpy(&state.backward, bytes.data() + 8, 8);
  return state;
}

}  // namespace longhaul::wire
