// The interface of all codecs. A codec encodes a tensor to bytes (a blob), and decodes it.
//
//   LH_ASSIGN_OR_RETURN(const auto codec, ParseCodec("tah:p=0.8"));  // registry.h
//   std::vector<std::byte> blob(codec->MaxEncodedBytes(shape));
//   AlignedBuffer scratch(codec->WorkspaceBytes(shape));        // base/aligned_buffer.h
//   EncodeResult result;
//   LH_RETURN_IF_ERROR(codec->Encode(view, context, scratch.span(), blob, &result));
//   blob.resize(result.bytes);
//
// Threads: a Codec is immutable; all methods may run on any thread at once, each call with its own
// workspace and output. No method throws. No method allocates, except to report an error or inside
// a message store. Errors: kInvalidArgument for wrong sizes, null or misaligned pointers and bytes
// that are not a blob of this codec; kUnimplemented for a blob of an unknown version. Bytes given
// to Decode may be hostile. A codec with a message store also returns the errors of the store.
// After an error the output may be partly written.
//
// Codecs with state are immutable too: the caller owns the state. The state of aqsgd (records of
// training samples) is in Context.messages, that of predict (means by token) in Context.tables. Two
// calls with the same state must not overlap. Sender and receiver each have their own state, and
// must process the same tensors in the same order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/ids.h"
#include "base/status.h"

namespace longhaul::codec {

class MessageStore;  // message_store.h
class Parallel;      // parallel.h
namespace predict {
class Tables;  // predict/tables.h
}

enum class Dtype : uint8_t { kF32 = 1, kF16 = 2, kBf16 = 3 };
size_t BytesPerElement(Dtype dtype);
std::string_view ToString(Dtype dtype);

// The number of a family of codecs in blob headers (kId in the family's format.h).
enum class CodecId : uint8_t {};
// A codec's parameters as blob headers store them (the family's format.h).
using CodecParameters = std::array<std::byte, 16>;
struct CodecKind {
  CodecId id{};
  CodecParameters parameters{};
  friend bool operator==(const CodecKind&, const CodecKind&) = default;
};

// A tensor of samples x tokens x channels, contiguous, with the channels innermost. If a dimension
// is 0 the tensor is empty.
struct Shape {
  uint32_t samples = 0, tokens = 0, channels = 0;
  uint64_t elements() const { return uint64_t{samples} * tokens * channels; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// Does not own the data. `data` is aligned to the size of an element.
struct TensorView {
  const void* data = nullptr;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  size_t size_bytes() const { return shape.elements() * BytesPerElement(dtype); }
};
struct MutableTensorView {
  void* data = nullptr;
  Dtype dtype = Dtype::kF32;
  Shape shape;
  size_t size_bytes() const { return shape.elements() * BytesPerElement(dtype); }
};

// What a call needs besides the tensor. The first six fields together identify the tensor. Two
// tensors of a run must differ in at least one of the six, because the six are the key of the
// random numbers that tah, fixed and dither use.
struct Context {
  uint64_t seed = 0;  // of the run
  Step step{0};
  uint32_t replica = 0;  // data-parallel replica, from 0
  EdgeId edge{0};        // pair of stages that exchange the tensor (base/ids.h)
  Direction direction = Direction::kForward;
  Microbatch microbatch{0};
  // For aqsgd: the global number of each sample of the tensor. Without numbers aqsgd sends every
  // sample whole and stores nothing. Not owned.
  std::span<const uint64_t> sample_ids;
  // For aqsgd: the store with the records of sample_ids. Null only without sample_ids. Not owned.
  MessageStore* messages = nullptr;
  // For predict: the means that predict the elements. Null: nothing is predicted. Not owned.
  predict::Tables* tables = nullptr;
  // With tables: the ids of the tensor's tokens, sample by sample. Empty is allowed in Decode,
  // because the blob has the ids. Ids that Decode gets must equal those of the blob. Not owned.
  std::span<const uint32_t> token_ids;
  // True: the tables learn from this tensor. Must be the same on both sides. Unused without tables.
  bool learns = false;
  // Threads that may help with this call; they do not change the result. Null: the calling thread
  // works alone. Not owned.
  Parallel* parallel = nullptr;
};

struct EncodeResult {
  size_t bytes = 0;              // size of the blob, at the start of `out`
  uint64_t nonfinite_tiles = 0;  // as in the blob's header (blob.h)
};

class Codec {
 public:
  virtual ~Codec() = default;

  // Returns the canonical codec string, which has every parameter:
  // "tah:p=0.8,tile=64,alloc=64,tau=2,rounding=nearest".
  virtual const std::string& name() const = 0;
  // Returns the family and the parameters as the headers of this codec's blobs have them.
  virtual CodecKind kind() const = 0;

  // Returns the bytes that `out` of Encode must have: the size of the largest blob of this shape.
  // SIZE_MAX for a shape that CheckShape (blob.h) refuses.
  virtual size_t MaxEncodedBytes(const Shape& shape) const = 0;
  // Returns whether every Encode writes exactly MaxEncodedBytes.
  virtual bool fixed_size() const = 0;
  // Returns the size of the smallest blob of this shape. Blobs of aqsgd usually have this size if
  // the store has a record of every sample.
  virtual size_t MinEncodedBytes(const Shape& shape) const { return MaxEncodedBytes(shape); }
  // Returns the size that blobs of activations and gradients usually have. Below MaxEncodedBytes
  // only for dither, zip and predict. For aqsgd: MaxEncodedBytes, the size without records.
  virtual size_t UsualEncodedBytes(const Shape& shape) const { return MaxEncodedBytes(shape); }
  // Returns the bytes of a sample's record in Context.messages. 0: the codec has no records, or the
  // shape has no elements.
  virtual size_t MessageBytes(const Shape& /*shape*/) const { return 0; }
  // Returns the number of rows that Context.tables needs for ids below `vocabulary`
  // (predict/tables.h). 0: the codec does not predict by tokens.
  virtual uint64_t TableRows(uint32_t /*vocabulary*/) const { return 0; }
  bool remembers_samples() const { return MessageBytes({1, 1, 1}) > 0; }
  bool predicts_by_tokens() const { return TableRows(1) > 0; }
  // Returns the bytes of scratch memory that Encode and Decode need, aligned to 64 bytes. 0: the
  // workspace may be empty.
  virtual size_t WorkspaceBytes(const Shape& shape) const = 0;

  // Writes a blob (blob.h) to the start of `out`, and the blob's size to *result, which must not be
  // null. `out` must have MaxEncodedBytes.
  virtual Status Encode(const TensorView& in, const Context& context,
                        std::span<std::byte> workspace, std::span<std::byte> out,
                        EncodeResult* result) const = 0;

  // Decodes `blob`, which must be exactly one blob. `out` must have the blob's shape; its dtype may
  // differ from that of the encoded tensor.
  virtual Status Decode(std::span<const std::byte> blob, const Context& context,
                        std::span<std::byte> workspace, const MutableTensorView& out) const = 0;
};

}  // namespace longhaul::codec
