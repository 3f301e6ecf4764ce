#include <array>

#include "codec/arguments.h"
#include "codec/cuda/cuda_codec.h"
#include "codec/cuda/device_codec.h"
#include "codec/predict/context.h"
#include "codec/predict/cuda/kernels.h"
#include "codec/predict/factory.h"

namespace longhaul::codec::predict {
namespace {

constexpr uint32_t kMostChannels = 1 << 24;

uint64_t TokensIn(const Shape& shape) {
  return uint64_t{shape.samples} * shape.tokens;
}

// Parts of the workspace, each a multiple of 64 bytes.
struct Workspace {
  explicit Workspace(const Shape& shape)
      : values(cuda::PredictScratchBytes(TokensIn(shape))),
        rest(values + AlignWorkspace(shape.elements() * sizeof(float))) {}
  uint64_t values, rest;
};

cuda::DeviceSpan From(const cuda::DeviceSpan& span, uint64_t offset) {
  return {span.start() + offset, span.bytes - offset};
}

Front FrontWith(const cuda::TablesOnDevice& tables) {
  if (!tables) return {};
  return ExpectedFront(&tables.shape, tables.learns, /*check=*/0);
}

// The encoder and decoder of the differences run between this class's own kernels.
class PredictDevice final : public cuda::DeviceCodec {
 public:
  PredictDevice(const Params& params, cuda::CudaCodec within)
      : params_(params), within_(std::move(within)) {}

  uint64_t WorkspaceBytes(const Shape& shape) const override {
    return Workspace(shape).rest + within_.WorkspaceBytes(shape);
  }
  // Refuses tables of another shape, and tensors with more tokens than the kernels take.
  Status CheckTables(const cuda::TablesOnDevice& tables, const Shape& shape) const override;
  Status Encode(const cuda::EncodeCall& call) const override;
  Status Decode(const cuda::DecodeCall& call) const override;

 private:
  cuda::PredictArgs MakePredict(const cuda::TensorArgs& tensor, const Shape& shape,
                                const Front& front, cuda::DeviceSpan workspace,
                                cuda::DeviceSpan blob, const cuda::TablesOnDevice& tables) const;
  // The header of a blob of the other codec, which the host has not seen.
  BlobHeader HeaderWithin(const Front& front, const Shape& shape, Dtype dtype,
                          uint64_t blob_bytes) const;
  // Decodes what was encoded just now, to the same values.
  Status DecodeOwn(cuda::DeviceSpan blob, cuda::DeviceSpan workspace,
                   const MutableTensorView& values, uint32_t* fault_dev,
                   const cuda::KernelQueue& queue) const;

  Params params_;
  cuda::CudaCodec within_;
};

cuda::PredictArgs PredictDevice::MakePredict(const cuda::TensorArgs& tensor, const Shape& shape,
                                             const Front& front, cuda::DeviceSpan workspace,
                                             cuda::DeviceSpan blob,
                                             const cuda::TablesOnDevice& tables) const {
  const Workspace parts(shape);
  unsigned char* const memory = workspace.start();
  cuda::PredictArgs args{};
  args.tensor = tensor;
  args.log2_pairs = params_.log2_pairs;
  args.prior = params_.prior;
  args.rate = params_.rate;
  args.kind = static_cast<uint32_t>(front.kind);
  args.id_bytes = front.id_bytes;
  args.tokens = cuda::MakeDivisor(shape.tokens);
  args.other = OtherOffset(shape, front.id_bytes);
  args.blob_dev = blob.start();
  args.scratch_dev = memory;
  args.values_dev = reinterpret_cast<float*>(memory + parts.values);
  if (!tables) return args;
  args.vocabulary = tables.shape.vocabulary;
  args.ids_dev = tables.ids == 0 ? nullptr : tables.ids_dev;
  args.mean_dev = reinterpret_cast<float*>(tables.memory_dev);
  args.counts_dev = reinterpret_cast<uint32_t*>(tables.memory_dev + tables.shape.counts_offset());
  args.rows_dev = reinterpret_cast<uint16_t*>(tables.memory_dev + tables.shape.rows_offset());
  args.state_dev = static_cast<cuda::PredictState*>(tables.state_dev);
  return args;
}

BlobHeader PredictDevice::HeaderWithin(const Front& front, const Shape& shape, Dtype dtype,
                                       uint64_t blob_bytes) const {
  const CodecKind kind = within_.cpu().kind();
  return {.codec = kind.id,
          .source_dtype = DtypeWithin(front.kind, dtype),
          .shape = shape,
          .payload_bytes = blob_bytes - kBlobHeaderBytes,
          .parameters = kind.parameters};
}

Status PredictDevice::DecodeOwn(cuda::DeviceSpan blob, cuda::DeviceSpan workspace,
                                const MutableTensorView& values, uint32_t* fault_dev,
                                const cuda::KernelQueue& queue) const {
  if (!within_.cpu().fixed_size()) return within_.DecodeUnseen(blob, values, fault_dev, queue);
  blob.bytes = within_.MaxEncodedBytes(values.shape);
  std::array<std::byte, kBlobHeaderBytes> header;
  WriteBlobHeader(HeaderWithin({.kind = Kind::kLearned}, values.shape, Dtype::kF32, blob.bytes),
                  header);
  return within_.Decode(header, blob, workspace, values, fault_dev, queue);
}

Status PredictDevice::CheckTables(const cuda::TablesOnDevice& tables, const Shape& shape) const {
  LH_RETURN_IF_ERROR(CheckShapeOf(tables.shape, params_, shape));
  if (tables.ids != 0 && tables.ids != TokensIn(shape)) {
    return InvalidArgument("expected the ids of {} tokens to be loaded to the device; {} are",
                           TokensIn(shape), tables.ids);
  }
  if (TokensIn(shape) <= cuda::kMostPredictTokens && shape.channels <= kMostChannels) {
    return absl::OkStatus();
  }
  return InvalidArgument(
      "predict on a GPU takes tensors of at most {} tokens of {} channels; one of {} x "
      "{} x {} came",
      cuda::kMostPredictTokens, kMostChannels, shape.samples, shape.tokens, shape.channels);
}

Status PredictDevice::Encode(const cuda::EncodeCall& call) const {
  const auto& [in, context, header, workspace, blob, messages, tables, queue] = call;
  if (!tables ? !context.token_ids.empty() : tables.ids == 0) {
    return absl::InvalidArgumentError(
        "predict needs DeviceTables with the ids of a tensor's tokens, or neither");
  }
  const auto& kernels = queue.kernels<cuda::PredictKernels>();
  const bool learns = tables && tables.learns;
  const Front front = FrontWith(tables);
  cuda::PredictArgs args =
      MakePredict(cuda::MakeTensorArgs(in), in.shape, front, workspace, blob, tables);
  args.header = header;
  args.fault_dev = reinterpret_cast<uint32_t*>(args.scratch_dev + cuda::PredictScratch(0).fault);
  LH_RETURN_IF_ERROR(queue.Run(kernels.begin, args, "queueing the encoder of predict"));
  const cuda::DeviceSpan blob_within = From(blob, kBlobHeaderBytes + args.other);
  const cuda::DeviceSpan workspace_within = From(workspace, Workspace(in.shape).rest);
  const MutableTensorView values{args.values_dev, Dtype::kF32, in.shape};
  const TensorView residual = tables ? TensorView{values.data, values.dtype, values.shape} : in;
  LH_RETURN_IF_ERROR(
      within_.Encode(residual, ContextWithin(context), workspace_within, blob_within, queue));
  if (learns) {
    LH_RETURN_IF_ERROR(DecodeOwn(blob_within, workspace_within, values, args.fault_dev, queue));
  }
  LH_RETURN_IF_ERROR(queue.Run(kernels.finish, args, "queueing the encoder of predict"));
  if (!learns) return absl::OkStatus();
  return queue.Run(kernels.learn, args, "queueing what predict learns");
}

Status PredictDevice::Decode(const cuda::DecodeCall& call) const {
  const auto& [parsed, blob, workspace, out, fault_dev, messages, tables, queue] = call;
  const auto& kernels = queue.kernels<cuda::PredictKernels>();
  const Front front = FrontWith(tables);
  cuda::PredictArgs args =
      MakePredict(cuda::MakeTensorArgs(out), out.shape, front, workspace, blob, tables);
  const uint64_t offset = kBlobHeaderBytes + args.other;
  if (blob.bytes < offset + kBlobHeaderBytes) {
    return InvalidArgument("expected a blob of predict of at least {} bytes, got {}",
                           offset + kBlobHeaderBytes, blob.bytes);
  }
  args.decodes = 1;
  args.fault_dev = fault_dev;
  if (out.dtype == Dtype::kF32) args.values_dev = static_cast<float*>(out.data);
  const cuda::DeviceSpan blob_within = From(blob, offset);
  const BlobHeader header = HeaderWithin(front, out.shape, parsed->source_dtype, blob_within.bytes);
  WriteBlobHeader(header, std::as_writable_bytes(std::span(args.within.words)));
  LH_RETURN_IF_ERROR(queue.Run(kernels.begin, args, "queueing the decoder of predict"));
  const MutableTensorView values =
      tables ? MutableTensorView{args.values_dev, Dtype::kF32, out.shape} : out;
  LH_RETURN_IF_ERROR(within_.Decode(std::as_bytes(std::span(args.within.words)), blob_within,
                                    From(workspace, Workspace(out.shape).rest), values, fault_dev,
                                    queue));
  LH_RETURN_IF_ERROR(queue.Run(kernels.finish, args, "queueing the decoder of predict"));
  if (front.kind != Kind::kLearned) return absl::OkStatus();
  return queue.Run(kernels.learn, args, "queueing what predict learns");
}

}  // namespace

StatusOr<std::unique_ptr<const cuda::DeviceCodec>> MakeDevice(const Codec& codec) {
  LH_ASSIGN_OR_RETURN(const Params params, FromHeader(codec.kind().parameters));
  LH_ASSIGN_OR_RETURN(cuda::CudaCodec within, cuda::CudaCodec::Create(OtherOf(codec)));
  return std::make_unique<PredictDevice>(params, std::move(within));
}

}  // namespace longhaul::codec::predict
