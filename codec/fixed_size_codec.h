// Base class of codecs whose encoded size depends on the shape alone. This class checks all
// arguments, writes the header, and checks that a blob's header fits the codec. A derived class
// only encodes and decodes the payload.
//
// Threads and errors: as for Codec (codec.h).
#pragma once

#include <string>

#include "codec/blob.h"
#include "codec/codec.h"

namespace longhaul::codec {

class FixedSizeCodec : public Codec {
 public:
  const std::string& name() const final { return name_; }
  CodecKind kind() const final { return {id_, parameters_}; }
  bool fixed_size() const final { return true; }
  // Returns SIZE_MAX for a shape that CheckShape refuses; Encode then returns the reason.
  size_t MaxEncodedBytes(const Shape& shape) const final;
  size_t WorkspaceBytes(const Shape& shape) const final;
  Status Encode(const TensorView& in, const Context& context, std::span<std::byte> workspace,
                std::span<std::byte> out, EncodeResult* result) const final;
  Status Decode(std::span<const std::byte> blob, const Context& context,
                std::span<std::byte> workspace, const MutableTensorView& out) const final;

 protected:
  FixedSizeCodec(CodecId id, std::string name, const CodecParameters& parameters)
      : id_(id), name_(std::move(name)), parameters_(parameters) {}

 private:
  // In all calls of the functions below, the shape has passed CheckShape and has elements.
  virtual uint64_t PayloadBytes(const Shape& shape) const = 0;
  virtual uint64_t ScratchBytes(const Shape& /*shape*/) const { return 0; }
  // Writes all PayloadBytes of `payload`. `scratch` has ScratchBytes, aligned to 64 bytes; it may
  // be null if ScratchBytes is 0. Returns the number of non-finite tiles. Cannot fail.
  virtual uint64_t EncodePayload(const TensorView& in, const Context& context, std::byte* scratch,
                                 std::byte* payload) const = 0;
  // `payload` has PayloadBytes bytes, which may be hostile. Returns kInvalidArgument for bytes that
  // cannot be decoded.
  virtual Status DecodePayload(const std::byte* payload, const Context& context,
                               const MutableTensorView& out) const = 0;

  CodecId id_;
  std::string name_;
  CodecParameters parameters_;
};

}  // namespace longhaul::codec
