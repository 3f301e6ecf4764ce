// Applies the codec `zip` in an engine's memory: bf16 elements to blobs and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "codec/blob.h"
#include "transport/collective/engine/engine.h"

namespace longhaul::collective::zip {

// Blobs begin at multiples of this.
inline constexpr uint64_t kBlobAlignment = 128;
constexpr uint64_t AlignBlob(uint64_t bytes) {
  return (bytes + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

// Maximum size of a blob of `elements` (up to 2^32 - 1); 0 for no elements.
uint64_t MostBytes(uint64_t elements);
// Size of a blob without its escapes; the whole size if compression gains nothing.
uint64_t StaticBytes(uint64_t elements);
// Offset of a blob's 8-byte word that holds the size of what follows its header.
inline constexpr uint64_t kSizeWordOffset = codec::kPayloadBytesOffset, kSizeWordBytes = 8;
inline const void* SizeWord(const std::byte* blob) {
  return blob + kSizeWordOffset;
}
// Returns the size of the whole blob from its size word. kDataLoss: no encoder writes this value.
StatusOr<uint64_t> BlobBytes(uint64_t elements, uint64_t size_word);

// What a decoder does when a blob is longer than the bytes received.
enum class IfCut : uint8_t {
  kIsFault,  // TakeFault reports the cut
  kLeave,    // nothing happens, because the whole blob follows
};

class Coder {
 public:
  // `engine` outlives the coder.
  static StatusOr<std::unique_ptr<Coder>> Create(Engine* engine);
  virtual ~Coder() = default;

  // `blob` must have MostBytes. Calls run one after another, on one queue.
  virtual Status Encode(const void* in, uint64_t elements, std::byte* blob, Queue queue) = 0;
  // `bytes`: number of the blob's bytes that have arrived.
  virtual Status Decode(const std::byte* blob, uint64_t bytes, uint64_t elements, void* out,
                        IfCut if_cut, Queue queue) = 0;
  // Allocates memory for tensors of `elements`.
  virtual Status Reserve(uint64_t elements) = 0;
  // Returns the faults that decoders found since the last call; their work must be done.
  // kOutOfRange: a blob was cut. kDataLoss: not a blob.
  virtual Status TakeFault() = 0;
};

}  // namespace longhaul::collective::zip
