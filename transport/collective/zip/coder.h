// The codec `zip` where an engine's memory is: bf16 elements to blobs and back.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_ZIP_CODER_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_ZIP_CODER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/status.h"
#include "codec/blob.h"
#include "transport/collective/engine/engine.h"

namespace longhaul::collective::zip {

// A blob begins at a multiple of this.
inline constexpr uint64_t kBlobAlignment = 128;
constexpr uint64_t AlignBlob(uint64_t bytes) {
  return (bytes + kBlobAlignment - 1) / kBlobAlignment * kBlobAlignment;
}

// The most bytes that a blob of so many elements (up to 2^32 - 1) may have. No elements have no
// blob: 0.
uint64_t MostBytes(uint64_t elements);
// The bytes of such a blob without its escapes; all of it where compression gains nothing.
uint64_t StaticBytes(uint64_t elements);
// A blob's word with the size of what follows its header, 8 bytes at this offset.
inline constexpr uint64_t kSizeWordOffset = codec::kPayloadBytesOffset, kSizeWordBytes = 8;
inline const void* SizeWord(const std::byte* blob) {
  return blob + kSizeWordOffset;
}
// The bytes of a whole blob, out of that word's value; kDataLoss for a value that no encoder
// writes.
StatusOr<uint64_t> BlobBytes(uint64_t elements, uint64_t size_word);

// What a decoder does with a blob that is longer than what is there of it.
enum class IfCut : uint8_t {
  kIsFault,  // TakeFault tells of it
  kLeave,    // nothing: the whole blob comes
};

class Coder {
 public:
  // `engine` outlives it.
  static StatusOr<std::unique_ptr<Coder>> Create(Engine* engine);
  virtual ~Coder() = default;

  // `blob` has MostBytes. One call after another on one queue.
  virtual Status Encode(const void* in, uint64_t elements, std::byte* blob, Queue queue) = 0;
  // `bytes` of the blob are there.
  virtual Status Decode(const std::byte* blob, uint64_t bytes, uint64_t elements, void* out,
                        IfCut if_cut, Queue queue) = 0;
  // Memory for tensors of so many elements.
  virtual Status Reserve(uint64_t elements) = 0;
  // What decoders found since the last call, whose work is done: OK; kOutOfRange where a blob was
  // cut; kDataLoss where one was none.
  virtual Status TakeFault() = 0;
};

}  // namespace longhaul::collective::zip

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_ZIP_CODER_H_
