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

// Returns the maximum bytes of a blob of `elements` (up to 2^32 - 1); 0 for no elements.
uint64_t MostBytes(uint64_t elements);
// Returns the bytes of a blob without its escapes, or of a whole uncompressed blob if compression
// of so few elements gains nothing.
uint64_t StaticBytes(uint64_t elements);
// Offset of the 8-byte word in a blob's header that holds the bytes after the header.
inline constexpr uint64_t kSizeWordOffset = codec::kPayloadBytesOffset, kSizeWordBytes = 8;
inline const void* SizeWord(const std::byte* blob) {
  return blob + kSizeWordOffset;
}
// Returns the bytes of the whole blob from its size word. kDataLoss: no encoder writes this word.
StatusOr<uint64_t> BlobBytes(uint64_t elements, uint64_t size_word);

// What a decoder does if a blob is longer than the bytes that have arrived.
enum class IfCut : uint8_t {
  kIsFault,  // TakeFault reports a cut blob
  kLeave,    // nothing: the caller decodes it again when the rest has arrived
};

class Coder {
 public:
  // `engine` must outlive the coder.
  static StatusOr<std::unique_ptr<Coder>> Create(Engine* engine);
  virtual ~Coder() = default;

  // `blob` must have room for MostBytes. All calls are on one queue, one after another.
  virtual Status Encode(const void* in, uint64_t elements, std::byte* blob, Queue queue) = 0;
  // `bytes`: how many bytes of the blob have arrived.
  virtual Status Decode(const std::byte* blob, uint64_t bytes, uint64_t elements, void* out,
                        IfCut if_cut, Queue queue) = 0;
  // Allocates what Encode needs for up to `elements`.
  virtual Status Reserve(uint64_t elements) = 0;
  // Returns a fault that Decode calls found since the last TakeFault; their work must be done.
  // kOutOfRange: a blob was cut. kDataLoss: the bytes are not a blob.
  virtual Status TakeFault() = 0;
};

}  // namespace longhaul::collective::zip
