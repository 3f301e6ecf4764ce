#include "worker/pipeline/tensor_assembler.h"

#include <algorithm>
#include <cstring>

namespace longhaul::worker {

Status TensorAssembler::Check(const wire::TensorHeader& header, size_t body_bytes) const {
  const uint32_t microbatches = header.sampling     ? options_.sampling_microbatches
                                : header.validation ? options_.validation_microbatches
                                                    : options_.microbatches;
  if (header.microbatch.value() >= microbatches) {
    return InvalidArgument("expected a microbatch below {}, got {}", microbatches,
                           header.microbatch.value());
  }
  if (!PassOf(header).trains() && options_.direction == Direction::kBackward) {
    return absl::InvalidArgumentError("validation and samples have no gradients");
  }
  if (header.extension_bytes != 0 || header.shards != 1 || header.replica != options_.replica) {
    return InvalidArgument("expected whole tensors of replica {} without extensions",
                           options_.replica);
  }
  if (header.slices != options_.slices) {
    return InvalidArgument("expected {} slices of a microbatch, got {}", options_.slices,
                           header.slices);
  }
  const codec::Codec& codec = options_.codec(PassOf(header));
  const size_t carried = options_.carried(PassOf(header));
  const size_t limit = codec.MaxEncodedBytes(options_.shape) + carried;
  if (header.blob_bytes <= carried || header.blob_bytes > limit) {
    return InvalidArgument("expected a blob of {} to {} bytes by {}, got {}", carried + 1, limit,
                           codec.name(), header.blob_bytes);
  }
  const uint64_t expected =
      std::min<uint64_t>(kChunkBytes, header.blob_bytes - header.chunk_offset);
  if (header.chunk_offset != uint64_t{header.chunk} * kChunkBytes || body_bytes != expected) {
    return InvalidArgument("expected chunk {} at {} with {} bytes, got {} with {}", header.chunk,
                           uint64_t{header.chunk} * kChunkBytes, expected, header.chunk_offset,
                           body_bytes);
  }
  return absl::OkStatus();
}

Status TensorAssembler::Begin(const wire::TensorHeader& header) {
  const Pass pass = PassOf(header);
  // Tensors come in order: the next slice of this pass, or the first of a later one.
  const uint32_t place = PlaceOf(SliceOf(header));
  const bool next = last_slice_ && pass == last_pass_ && place == PlaceOf(*last_slice_) + 1;
  const bool first = (!last_slice_ || pass > last_pass_) && place == 0;
  if (!next && !first) {
    return InvalidArgument("step {} microbatch {} slice {} is not the one that follows",
                           header.step.value(), header.microbatch.value(), header.slice);
  }
  LH_ASSIGN_OR_RETURN(BlobBuffer blob, options_.runner(pass).NewBlob(header.blob_bytes));
  partial_ = std::make_shared<EncodedTensor>(
      EncodedTensor{.pass = pass,
                    .slice = SliceOf(header),
                    .blob = std::move(blob),
                    .blob_bytes = static_cast<size_t>(header.blob_bytes),
                    .chunks = header.chunks,
                    .began = Now()});
  received_bytes_ = 0;
  next_chunk_ = 0;
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<const EncodedTensor>> TensorAssembler::Take(
    const wire::TensorHeader& header, std::span<const std::byte> body) {
  LH_RETURN_IF_ERROR(Check(header, body.size()));
  if (!partial_) LH_RETURN_IF_ERROR(Begin(header));
  if (PassOf(header) != partial_->pass || SliceOf(header) != partial_->slice ||
      header.chunk != next_chunk_ || header.chunks != partial_->chunks ||
      header.blob_bytes != partial_->blob_bytes) {
    return absl::InvalidArgumentError("a chunk that does not continue its tensor");
  }
  std::memcpy(partial_->blob.bytes.data() + header.chunk_offset, body.data(), body.size());
  received_bytes_ += body.size();
  if (++next_chunk_ < partial_->chunks) return nullptr;
  if (received_bytes_ != partial_->blob_bytes) {
    return absl::InvalidArgumentError("the chunks of a tensor do not add up to its blob");
  }
  last_pass_ = partial_->pass;
  last_slice_ = partial_->slice;
  return std::exchange(partial_, nullptr);
}

}  // namespace longhaul::worker
