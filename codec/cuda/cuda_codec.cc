#include "codec/cuda/cuda_codec.h"

#include <fmt/format.h>

#include "codec/aqsgd/arithmetic.h"
#include "codec/arguments.h"
#include "codec/registry.h"

namespace longhaul::codec::cuda {
namespace {

constexpr size_t kBlobAlignment = 16;

// The codecs' checks (arguments.h) are of the values; this one is of device memory.
Status CheckMemory(std::string_view what, const void* data, size_t bytes, size_t needed,
                   size_t alignment) {
  if (needed == 0) return absl::OkStatus();
  if (data == nullptr || bytes < needed || reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    return InvalidArgument(
        "expected {} of {} bytes of device memory aligned to {}, got {} bytes at {}", what, needed,
        alignment, bytes, data);
  }
  return absl::OkStatus();
}

// `record_bytes`: 0 for a codec that remembers nothing.
Status CheckMessages(const DeviceMessages& messages, uint64_t samples, size_t record_bytes) {
  if (messages.entries.bytes == 0 && messages.records.bytes == 0) return absl::OkStatus();
  if (record_bytes == 0) {
    return absl::InvalidArgumentError("expected no messages for a codec that remembers nothing");
  }
  LH_RETURN_IF_ERROR(CheckMemory("entries of the samples", messages.entries.data_dev,
                                 messages.entries.bytes, samples * sizeof(aqsgd::Entry),
                                 kBlobAlignment));
  return CheckMemory("records of the samples", messages.records.data_dev, messages.records.bytes,
                     samples * record_bytes, kBlobAlignment);
}

}  // namespace

StatusOr<CudaCodec> CudaCodec::Create(std::shared_ptr<const Codec> codec) {
  const Family* const family = FindFamily(codec->kind().id);
  if (family == nullptr || family->device == nullptr) {
    return InvalidArgument("{} does not run on a GPU; choose another codec", codec->name());
  }
  LH_ASSIGN_OR_RETURN(std::unique_ptr<const DeviceCodec> device, family->device(*codec));
  return CudaCodec(std::move(codec), std::move(device));
}

StatusOr<CudaCodec> CudaCodec::Create(std::string_view text) {
  LH_ASSIGN_OR_RETURN(std::unique_ptr<const Codec> codec, ParseCodec(text));
  return Create(std::shared_ptr<const Codec>(std::move(codec)));
}

size_t CudaCodec::WorkspaceBytes(const Shape& shape) const {
  return Empty(shape) || !CheckShape(shape).ok() ? 0 : device_->WorkspaceBytes(shape);
}

Status CudaCodec::CheckTables(const TablesOnDevice& tables, const Shape& shape) const {
  if (!tables) return absl::OkStatus();
  if (cpu_->predicts_by_tokens()) return device_->CheckTables(tables, shape);
  return absl::InvalidArgumentError("expected no tables for a codec that predicts nothing");
}

Status CudaCodec::Encode(const TensorView& in, const Context& context, DeviceSpan workspace,
                         DeviceSpan blob, const KernelQueue& queue, const DeviceMessages& messages,
                         const TablesOnDevice& tables) const {
  LH_RETURN_IF_ERROR(CheckTensor(in.data, in.dtype, in.shape));
  LH_RETURN_IF_ERROR(CheckMemory("a workspace", workspace.data_dev, workspace.bytes,
                                 WorkspaceBytes(in.shape), kWorkspaceAlignment));
  const size_t bytes = MaxEncodedBytes(in.shape);
  LH_RETURN_IF_ERROR(CheckMemory("an output", blob.data_dev, blob.bytes, bytes, kBlobAlignment));
  LH_RETURN_IF_ERROR(CheckMessages(messages, in.shape.samples, cpu_->MessageBytes(in.shape)));
  if (cpu_->remembers_samples() && !context.sample_ids.empty() && messages.entries.bytes == 0) {
    return InvalidArgument("{} needs DeviceMessages where the samples have ids; there are none",
                           ToString(cpu_->kind().id));
  }
  LH_RETURN_IF_ERROR(CheckTables(tables, in.shape));
  const CodecKind kind = cpu_->kind();
  const BlobHeader header = {.codec = kind.id,
                             .source_dtype = in.dtype,
                             .shape = in.shape,
                             .payload_bytes = bytes - kBlobHeaderBytes,
                             .parameters = kind.parameters};
  HeaderArgs header_args;
  WriteBlobHeader(header, std::as_writable_bytes(std::span(header_args.words)));
  if (Empty(in.shape)) return queue.WriteHeader(header_args, blob.data_dev);
  return device_->Encode({.in = in,
                          .context = context,
                          .header = header_args,
                          .workspace = workspace,
                          .blob = blob,
                          .messages = messages,
                          .tables = tables,
                          .queue = queue});
}

Status CudaCodec::Decode(std::span<const std::byte> header, DeviceSpan blob, DeviceSpan workspace,
                         const MutableTensorView& out, uint32_t* fault_dev,
                         const KernelQueue& queue, const DeviceMessages& messages,
                         const TablesOnDevice& tables) const {
  LH_RETURN_IF_ERROR(CheckTensor(out.data, out.dtype, out.shape));
  LH_RETURN_IF_ERROR(CheckMemory("a workspace", workspace.data_dev, workspace.bytes,
                                 WorkspaceBytes(out.shape), kWorkspaceAlignment));
  LH_RETURN_IF_ERROR(
      CheckMemory("a word for faults", fault_dev, sizeof(uint32_t), sizeof(uint32_t), 4));
  if (header.size() != kBlobHeaderBytes) {
    return InvalidArgument("expected a header of {} bytes, got {}", kBlobHeaderBytes,
                           header.size());
  }
  LH_ASSIGN_OR_RETURN(const BlobHeader parsed, ParseBlobHeader(header, blob.bytes));
  const CodecKind kind = cpu_->kind();
  LH_RETURN_IF_ERROR(CheckBlob(parsed, kind.id, kind.parameters, cpu_->name(), out.shape));
  LH_RETURN_IF_ERROR(CheckMessages(messages, out.shape.samples, cpu_->MessageBytes(out.shape)));
  LH_RETURN_IF_ERROR(CheckTables(tables, out.shape));
  const size_t least = cpu_->MinEncodedBytes(out.shape);
  const size_t most = MaxEncodedBytes(out.shape);
  if (blob.bytes < least || blob.bytes > most) {
    return InvalidArgument("a blob of {} with this shape has {}{} bytes; {} came", cpu_->name(),
                           least, least == most ? "" : fmt::format(" to {}", most), blob.bytes);
  }
  if (Empty(out.shape)) return absl::OkStatus();
  LH_RETURN_IF_ERROR(CheckMemory("a blob", blob.data_dev, blob.bytes, blob.bytes, kBlobAlignment));
  return device_->Decode({.header = &parsed,
                          .blob = blob,
                          .workspace = workspace,
                          .out = out,
                          .fault_dev = fault_dev,
                          .messages = messages,
                          .tables = tables,
                          .queue = queue});
}

Status CudaCodec::DecodeUnseen(DeviceSpan blob, const MutableTensorView& out, uint32_t* fault_dev,
                               const KernelQueue& queue) const {
  if (!device_->decodes_unseen()) {
    return absl::UnimplementedError(
        fmt::format("{} cannot decode a blob whose header is on the device alone", cpu_->name()));
  }
  LH_RETURN_IF_ERROR(CheckTensor(out.data, out.dtype, out.shape));
  LH_RETURN_IF_ERROR(
      CheckMemory("a word for faults", fault_dev, sizeof(uint32_t), sizeof(uint32_t), 4));
  if (Empty(out.shape)) return absl::OkStatus();
  LH_RETURN_IF_ERROR(
      CheckMemory("a blob", blob.data_dev, blob.bytes, kBlobHeaderBytes, kBlobAlignment));
  return device_->Decode({.header = nullptr,
                          .blob = blob,
                          .workspace = {},
                          .out = out,
                          .fault_dev = fault_dev,
                          .messages = {},
                          .tables = {},
                          .queue = queue});
}

}  // namespace longhaul::codec::cuda
