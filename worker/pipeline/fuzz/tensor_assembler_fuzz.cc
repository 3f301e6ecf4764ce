// Any chunks of tensors from a neighbour: what is put together has all its bytes, in order, and
// nobody makes this side keep more than one tensor.
//
// The input is a list of acts: u8 act; then a whole tensor header (act 0) or 4 bytes.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/fuzz/target.h"
#include "codec/registry.h"
#include "worker/pipeline/tensor_assembler.h"

namespace longhaul::worker {
namespace {

constexpr codec::Shape kFuzzShape{1, 150, 128};  // two chunks as fp32
constexpr size_t kFuzzCarried = 48;

// Gives buffers and does nothing else; counts those that are held.
class FuzzBuffers : public BoundaryCodec {
 public:
  StatusOr<BlobBuffer> NewBlob(size_t bytes) override {
    if (++*held_ > 2) std::abort();  // one that comes, one that has come
    auto buffer = std::make_shared<AlignedBuffer>(bytes);
    const std::span<std::byte> span = buffer->span();
    return BlobBuffer{
        span, std::shared_ptr<void>(span.data(), [buffer, held = held_](void*) { --*held; })};
  }
  codec::predict::TablesShape tables_shape() const override { return {}; }
  StatusOr<uint64_t> TablesCheck() override { return uint64_t{0}; }
  StatusOr<codec::predict::Tables> SaveTables() override { return absl::InternalError("none"); }
  Status RestoreTables(const codec::predict::Tables&) override { return absl::OkStatus(); }
  StatusOr<EncodedBlob> Encode(const codec::TensorView&, const codec::Context&) override {
    return absl::InternalError("none");
  }
  StatusOr<BoundaryTensor> Decode(std::span<const std::byte>, const codec::Context&) override {
    return absl::InternalError("none");
  }
  StatusOr<std::unique_ptr<BoundaryCodec>> Sharing(std::shared_ptr<const codec::Codec>) override {
    return absl::InternalError("none");
  }

 private:
  const std::shared_ptr<size_t> held_ = std::make_shared<size_t>(0);
};

std::byte PatternAt(uint64_t offset, uint8_t seed) {
  return static_cast<std::byte>(offset * 31 + seed);
}

class HostileNeighbour {
 public:
  HostileNeighbour() {
    TensorAssemblerOptions options;
    options.microbatches = 3;
    options.validation_microbatches = 2;
    options.sampling_microbatches = 1;
    options.slices = 2;
    options.shape = kFuzzShape;
    options.codec = [](const Pass&) -> const codec::Codec& {
      static const auto codec = codec::ParseCodec("none").value();
      return *codec;
    };
    options.runner = [this](const Pass&) -> BoundaryCodec& { return buffers_; };
    options.carried = [](const Pass& pass) { return pass.is_clean() ? size_t{0} : kFuzzCarried; };
    assembler_ = std::make_unique<TensorAssembler>(std::move(options));
  }

  // False: the stage has ended, as after every refused chunk.
  bool Take(const wire::TensorHeader& header, size_t body_bytes, uint8_t seed) {
    std::vector<std::byte> body(body_bytes);
    for (size_t i = 0; i < body.size(); ++i) {
      body[i] = PatternAt(header.chunk_offset + i, seed);
    }
    // Only headers that decode get here.
    std::array<std::byte, wire::kTensorHeaderBytes> bytes;
    wire::EncodeTensorHeader(header, bytes);
    const auto decoded = wire::DecodeTensorHeader(bytes);
    if (!decoded.ok() || decoded->kind != wire::TensorKind::kChunk) return true;
    auto whole = assembler_->Take(*decoded, body);
    if (!whole.ok()) return false;
    if (header.chunk == 0) seed_ = seed;
    if (seed != seed_) mixed_ = true;
    if (*whole == nullptr) return true;
    ++tensors_;
    const EncodedTensor& tensor = **whole;
    if (tensor.blob_bytes != header.blob_bytes) std::abort();
    for (size_t i = 0; i < tensor.blob_bytes && !mixed_; ++i) {
      if (tensor.blob.bytes[i] != PatternAt(i, seed)) std::abort();
    }
    mixed_ = false;
    return true;
  }

  // The chunk that comes next by the book, of a tensor of this size.
  wire::TensorHeader Next(uint8_t kind, uint16_t size) {
    if (at_.chunk + 1 < at_.chunks) {
      ++at_.chunk;
    } else {
      const uint32_t limit = at_.validation ? 2 : at_.sampling ? 1 : 3;
      if (tensors_ > 0) Step(limit, kind);
      at_.kind = wire::TensorKind::kChunk;
      at_.slices = 2;
      at_.blob_bytes = 1 + kFuzzCarried + uint64_t{size} * 2;
      at_.chunks = static_cast<uint32_t>((at_.blob_bytes + kChunkBytes - 1) / kChunkBytes);
      at_.chunk = 0;
    }
    at_.chunk_offset = uint64_t{at_.chunk} * kChunkBytes;
    return at_;
  }
  size_t tensors() const { return tensors_; }

 private:
  void Step(uint32_t microbatches, uint8_t kind) {
    if (++at_.slice < 2) return;
    at_.slice = 0;
    at_.microbatch = Microbatch(at_.microbatch.value() + 1);
    if (at_.microbatch.value() < microbatches) return;
    at_.microbatch = Microbatch(0);
    at_.step = longhaul::Step(at_.step.value() + 1);
    at_.validation = kind % 4 == 1 || kind % 4 == 2;
    at_.clean = kind % 4 == 2;
    at_.sampling = kind % 4 == 3;
  }

  FuzzBuffers buffers_;
  std::unique_ptr<TensorAssembler> assembler_;
  wire::TensorHeader at_;
  uint8_t seed_ = 0;
  bool mixed_ = false;
  size_t tensors_ = 0;
};

}  // namespace
}  // namespace longhaul::worker

LH_FUZZ_TARGET(tensor_assembler) {
  using namespace longhaul::worker;  // NOLINT(google-build-using-namespace)
  namespace wire = longhaul::wire;
  HostileNeighbour neighbour;
  size_t at = 0;
  for (int acts = 0; acts < 40 && at + 5 <= size; ++acts) {
    const uint8_t act = data[at], a = data[at + 1], b = data[at + 2], seed = data[at + 3];
    wire::TensorHeader header;
    size_t body = a | size_t{b} << 8;
    if (act % 4 == 0 && at + 1 + wire::kTensorHeaderBytes <= size) {
      const auto decoded =
          wire::DecodeTensorHeader(std::as_bytes(std::span(data + at + 1, size - at - 1)));
      at += 1 + wire::kTensorHeaderBytes;
      if (!decoded.ok()) continue;
      header = *decoded;
      const uint64_t rest = header.blob_bytes - header.chunk_offset;
      if (act >= 128) body = static_cast<size_t>(std::min<uint64_t>(kChunkBytes, rest));
    } else {
      header = neighbour.Next(data[at + 4], static_cast<uint16_t>(a | b << 8));
      body = static_cast<size_t>(
          std::min<uint64_t>(kChunkBytes, header.blob_bytes - header.chunk_offset));
      // Seldom with a lie in it.
      if (act % 32 == 1) body ^= 1;
      if (act % 32 == 2) ++header.chunk_offset;
      if (act % 32 == 3) ++header.slice;
      at += 5;
    }
    if (!neighbour.Take(header, std::min<size_t>(body, 70'000), seed)) break;
  }
  return neighbour.tensors() > 0;
}
