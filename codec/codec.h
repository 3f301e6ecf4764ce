// The interface of all codecs: encodes a tensor to bytes, and decodes it.
//
//   auto codec = ParseCodec("tah:p=0.8");                       // registry.h
//   std::vector<std::byte> blob(codec->MaxEncodedBytes(shape)),
//   scratch(codec->WorkspaceBytes(shape)); EncodeResult result;
//   LH_RETURN_IF_ERROR(codec->Encode(view, context, scratch, blob, &result));
//   blob.resize(result.bytes);
//
// Threads: a Codec is immutable; all methods may run on any thread at once, each call with its own
// workspace and output. No method allocates unless it fails (or a store does), none throws. Errors:
// kInvalidArgument for wrong sizes, null or misaligned pointers and bytes that are not a blob of
// this codec; kUnimplemented for a blob of an unknown version. Bytes given to Decode may be
// hostile. A codec with state also returns the errors of its store.
//
// Codecs with state are immutable too: the state of aqsgd (records of training samples) is in
// Context.messages, the state of predict (means by token) in Context.tables. Two calls with the
// same state must not overlap, and both sides of a boundary must process the same tensors in the
// same order.
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

// A family's number in blob headers, from the family's format.h.
enum class CodecId : uint8_t {};
// A family's parameters as stored in blob headers.
using CodecParameters = std::array<std::byte, 16>;
struct CodecKind {
  CodecId id{};
  CodecParameters parameters{};
  friend bool operator==(const CodecKind&, const CodecKind&) = default;
};

// (samples, tokens, channels), channels contiguous, no gaps. A zero in any dimension: an empty
// tensor.
struct Shape {
  uint32_t samples = 0, tokens = 0, channels = 0;
  uint64_t elements() const { return uint64_t{samples} * tokens * channels; }
  friend bool operator==(const Shape&, const Shape&) = default;
};

// Does not own the data. `data` is aligned to its element.
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

// Identifies a tensor of a run. Keys stochastic rounding (tah, fixed); codecs with state find their
// state by sample_ids. Two tensors of a run never share a context.
struct Context {
  uint64_t seed = 0;
  Step step{0};
  uint32_t replica = 0;
  EdgeId edge{0};
  Direction direction = Direction::kForward;
  Microbatch microbatch{0};
  // Global sample numbers, one per sample of the tensor. Without them a codec with state sends
  // every sample whole and stores nothing. Not owned.
  std::span<const uint64_t> sample_ids;
  // The records of sample_ids, for a codec with state. Not owned.
  MessageStore* messages = nullptr;
  // The means by which predict predicts. Null: predict predicts nothing. Not owned.
  predict::Tables* tables = nullptr;
  // With tables: the ids of the tensor's tokens, sample by sample. A decoder needs none. If it has
  // ids, the blob must have the same. Not owned.
  std::span<const uint32_t> token_ids;
  // Whether the tables learn from this tensor.
  bool learns = false;
  // Threads that may help with this call. The bytes are the same without them. Null: the calling
  // thread works alone. Not owned.
  Parallel* parallel = nullptr;
};

struct EncodeResult {
  size_t bytes = 0;              // written to `out`
  uint64_t nonfinite_tiles = 0;  // tiles (elements for the tile-less codecs) with NaN or Inf
};

class Codec {
 public:
  virtual ~Codec() = default;

  // The canonical codec string with every parameter:
  // "tah:p=0.8,tile=64,alloc=64,tau=2,rounding=nearest".
  virtual const std::string& name() const = 0;
  // Family and parameters, as headers of this codec's blobs have them.
  virtual CodecKind kind() const = 0;

  // Bytes that `out` of Encode must have. If fixed_size(), every Encode writes exactly this many.
  virtual size_t MaxEncodedBytes(const Shape& shape) const = 0;
  virtual bool fixed_size() const = 0;
  // Size of the smallest blob of this shape. A codec with state writes it when it has a record of
  // every sample.
  virtual size_t MinEncodedBytes(const Shape& shape) const { return MaxEncodedBytes(shape); }
  // Size that a network's tensors usually take. Differs from the largest only if a tensor's
  // contents decide the size.
  virtual size_t UsualEncodedBytes(const Shape& shape) const { return MaxEncodedBytes(shape); }
  // Size of a sample's record in Context.messages. 0 for a codec without records.
  virtual size_t MessageBytes(const Shape& /*shape*/) const { return 0; }
  // Rows of Context.tables for ids below `vocabulary` (predict/tables.h). 0 for a codec that does
  // not predict by tokens.
  virtual uint64_t TableRows(uint32_t /*vocabulary*/) const { return 0; }
  bool remembers_samples() const { return MessageBytes({1, 1, 1}) > 0; }
  bool predicts_by_tokens() const { return TableRows(1) > 0; }
  // Bytes of scratch memory that Encode and Decode need. The caller aligns it to 64 bytes.
  virtual size_t WorkspaceBytes(const Shape& shape) const = 0;

  // Writes a self-describing blob (blob.h) at the start of `out`.
  virtual Status Encode(const TensorView& in, const Context& context,
                        std::span<std::byte> workspace, std::span<std::byte> out,
                        EncodeResult* result) const = 0;

  // `blob` is exactly one blob. `out` has the blob's shape; its dtype may be any.
  virtual Status Decode(std::span<const std::byte> blob, const Context& context,
                        std::span<std::byte> workspace, const MutableTensorView& out) const = 0;
};

}  // namespace longhaul::codec
