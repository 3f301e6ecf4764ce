// The digests that two neighboring stages exchange before the first tensor, if a codec of their
// edge has state, which is what the codec remembers of earlier messages. Equal digests mean that
// both stages have the same state. The digests follow a tensor header (tensor_header.h) of kind
// kMessageState: 16 bytes, little-endian.
//
//   offset size  field
//        0    8  forward    digest of the state of the codec of activations; 0: the codec has no
//                           state, or the state is empty
//        8    8  backward   the same for the codec of gradients
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "proto/wire/little_endian.h"

namespace longhaul::wire {

inline constexpr size_t kMessageStateBytes = 16;

struct MessageState {
  uint64_t forward = 0, backward = 0;
  friend bool operator==(const MessageState&, const MessageState&) = default;
};

inline void EncodeMessageState(const MessageState& state,
                               std::span<std::byte, kMessageStateBytes> out) {
  PutLe(out, 0, state.forward);
  PutLe(out, 8, state.backward);
}

// kInvalidArgument: not 16 bytes.
inline StatusOr<MessageState> DecodeMessageState(std::span<const std::byte> bytes) {
  if (bytes.size() != kMessageStateBytes) {
    return InvalidArgument("message state: expected 16 bytes, got {}", bytes.size());
  }
  return MessageState{GetLe<uint64_t>(bytes, 0), GetLe<uint64_t>(bytes, 8)};
}

}  // namespace longhaul::wire
