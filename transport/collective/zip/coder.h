// Applies the codec `zip` in an engine's memory: bf16 elements to blobs and back. An escape is an
// element whose exponent does not fit its 3-bit code (codec/zip/format.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "codec/blob.h"
#include "transport/collective/engine/engine.h"

namespace longhaul::collective::zip {

// Blobs begin at multiples of this number of bytes.
inline constexpr uint64_t kBlobAlignment = 128;
constexpr uint64_t AlignBlob(uint64_t bytes) {
  return (bytes + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

// Returns the maximum bytes of a blob of `elements` elements (up to 2^32 - 1); 0 for no elements.
uint64_t MostBytes(uint64_t elements);
// Returns the bytes of a blob without its escapes: the part whose size does not depend on the data.
// If `elements` are so few that compression gains nothing, this is the whole, uncompressed blob.
uint64_t StaticBytes(uint64_t elements);
// Offset of the size word: 8 bytes in a blob's header, the number of bytes after the header.
inline constexpr uint64_t kSizeWordOffset = codec::kPayloadBytesOffset, kSizeWordBytes = 8;
inline const void* SizeWord(const std::byte* blob) {
  return blob + kSizeWordOffset;
}
// Returns the bytes of the whole blob, computed from the value of its size word. kDataLoss: no blob
// of `elements` has this size.
StatusOr<uint64_t> BlobBytes(uint64_t elements, uint64_t size_word);

// What a decoder does if a blob is longer than the bytes that have arrived.
enum class IfCut : uint8_t {
  kIsFault,  // the next TakeFault returns kOutOfRange
  kLeave,    // nothing: the caller decodes the blob again when the rest has arrived
};

// Calls with a queue of a device only queue work; in host memory they are done when they return.
// Not thread-safe.
class Coder {
 public:
  // `engine` must outlive the coder.
  static StatusOr<std::unique_ptr<Coder>> Create(Engine* engine);
  virtual ~Coder() = default;

  // `blob` must have room for MostBytes. All calls must be on one queue, one after another.
  virtual Status Encode(const void* in, uint64_t elements, std::byte* blob, Queue queue) = 0;
  // `bytes`: how many bytes of the blob have arrived.
  virtual Status Decode(const std::byte* blob, uint64_t bytes, uint64_t elements, void* out,
                        IfCut if_cut, Queue queue) = 0;
  // Allocates the memory that Encode needs for up to `elements` elements.
  virtual Status Reserve(uint64_t elements) = 0;
  // Returns a fault that Decode found since the last TakeFault, or OK. Call it when the queued work
  // of the Decode calls is done. kOutOfRange: a blob was cut. kDataLoss: the bytes are not a blob.
  virtual Status TakeFault() = 0;
};

}  // namespace longhaul::collective::zip
