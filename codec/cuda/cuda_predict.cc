#include "codec/cuda/cuda_predict.h"

#include <fmt/format.h>

#include <array>

#include "base/check.h"
#include "codec/arguments.h"
#include "codec/predict/context.h"

namespace longhaul::codec::cuda {
namespace {

constexpr uint32_t kMostChannels = 1 << 24;

uint64_t TokensIn(const Shape& shape) {
  return uint64_t{shape.samples} * shape.tokens;
}

predict::Params ParamsOf(const BlobHeader& kind) {
  const StatusOr<predict::Params> params = predict::FromHeader(kind.parameters);
  LH_CHECK(params.ok(), "{}", Message(params.status()));  // they are the codec's own
  return *params;
}

unsigned char* Bytes(void* data_dev) {
  return static_cast<unsigned char*>(data_dev);
}

// Parts of the workspace, each a multiple of 64 bytes.
struct Scratch {
  Scratch(const Shape& shape, const predict::Params& params)
      : values(PredictScratchBytes(TokensIn(shape))),
        differences(values + AlignWorkspace(shape.elements() * sizeof(float))),
        rest(differences +
             (params.log2_pairs > 0 ? AlignWorkspace(shape.elements() * sizeof(float)) : 0)) {}
  uint64_t values, differences, rest;
};

DeviceSpan From(const DeviceSpan& span, uint64_t offset) {
  return {Bytes(span.data_dev) + offset, span.bytes - offset};
}

PredictArgs MakePredict(const BlobHeader& kind, const TensorArgs& tensor, const Shape& shape,
                        const predict::Front& front, DeviceSpan workspace, DeviceSpan blob,
                        const DeviceTables* tables) {
  const predict::Params params = ParamsOf(kind);
  const Scratch scratch(shape, params);
  unsigned char* const memory = Bytes(workspace.data_dev);
  PredictArgs args{};
  args.tensor = tensor;
  args.log2_pairs = params.log2_pairs;
  args.prior = params.prior;
  args.rate = params.rate;
  args.kind = static_cast<uint32_t>(front.kind);
  args.id_bytes = front.id_bytes;
  args.tokens = MakeDivisor(shape.tokens);
  args.other = predict::OtherOffset(shape, front.id_bytes);
  args.blob_dev = Bytes(blob.data_dev);
  args.scratch_dev = memory;
  args.values_dev = reinterpret_cast<float*>(memory + scratch.values);
  args.differences_dev = reinterpret_cast<float*>(memory + scratch.differences);
  if (tables == nullptr) return args;
  args.vocabulary = tables->shape().vocabulary;
  args.ids_dev = tables->ids() == 0 ? nullptr : tables->ids_dev();
  args.means_dev = tables->means_dev();
  args.counts_dev = tables->counts_dev();
  args.state_dev = static_cast<PredictState*>(tables->state_dev());
  return args;
}

predict::Front FrontWith(const DeviceTables* tables) {
  if (tables == nullptr) return {};
  return predict::ExpectedFront(&tables->shape(), tables->learns(), /*check=*/0);
}

// What the header of a blob of the other codec is, which the host has not seen.
BlobHeader HeaderWithin(const PredictParts& parts, const predict::Front& front, const Shape& shape,
                        Dtype dtype, uint64_t blob_bytes) {
  BlobHeader header = parts.codec.kind();
  header.source_dtype = predict::DtypeWithin(front.kind, dtype);
  header.shape = shape;
  header.payload_bytes = blob_bytes - kBlobHeaderBytes;
  return header;
}

// Decodes what was encoded just now, to the same values.
Status DecodeOwn(const PredictParts& parts, DeviceSpan blob, DeviceSpan workspace,
                 const MutableTensorView& values, uint32_t* fault_dev,
                 const longhaul::cuda::Stream& stream) {
  if (!parts.codec.cpu().fixed_size()) {
    return parts.codec.DecodeUnseen(blob, values, fault_dev, stream);
  }
  blob.bytes = parts.codec.MaxEncodedBytes(values.shape);
  std::array<std::byte, kBlobHeaderBytes> header;
  WriteBlobHeader(
      HeaderWithin(parts, {.kind = predict::Kind::kLearned}, values.shape, Dtype::kF32, blob.bytes),
      header);
  return parts.codec.Decode(header, blob, workspace, values, fault_dev, stream);
}

}  // namespace

Status CheckTables(const DeviceTables* tables, const BlobHeader& kind, const Shape& shape) {
  if (tables == nullptr) return absl::OkStatus();
  if (kind.codec != CodecId::kPredict) {
    return absl::InvalidArgumentError("expected no tables for a codec that predicts nothing");
  }
  LH_RETURN_IF_ERROR(predict::CheckShapeOf(tables->shape(), ParamsOf(kind), shape));
  if (tables->ids() != 0 && tables->ids() != TokensIn(shape)) {
    return absl::InvalidArgumentError(
        fmt::format("expected the ids of {} tokens to be loaded to the device; {} are",
                    TokensIn(shape), tables->ids()));
  }
  if (TokensIn(shape) <= kMostPredictTokens && shape.channels <= kMostChannels) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      fmt::format("predict on a GPU takes tensors of at most {} tokens of {} channels; one of {} x "
                  "{} x {} came",
                  kMostPredictTokens, kMostChannels, shape.samples, shape.tokens, shape.channels));
}

uint64_t PredictWorkspaceBytes(const Shape& shape, const BlobHeader& kind) {
  return Scratch(shape, ParamsOf(kind)).rest;
}

Status EncodePredicted(const PredictParts& parts, const TensorView& in, const Context& context,
                       DeviceSpan workspace, DeviceSpan blob, const longhaul::cuda::Stream& stream,
                       const DeviceTables* tables) {
  if (tables == nullptr ? !context.token_ids.empty() : tables->ids() == 0) {
    return absl::InvalidArgumentError(
        "predict needs DeviceTables with the ids of a tensor's tokens, or neither");
  }
  const bool learns = tables != nullptr && tables->learns();
  const predict::Front front = FrontWith(tables);
  // The kernels only read it.
  const TensorArgs tensor{const_cast<void*>(in.data), static_cast<uint32_t>(in.dtype),
                          in.shape.samples, in.shape.tokens, in.shape.channels};
  PredictArgs args = MakePredict(parts.kind, tensor, in.shape, front, workspace, blob, tables);
  args.header = parts.header;
  args.fault_dev = reinterpret_cast<uint32_t*>(args.scratch_dev + PredictScratch(0).fault);
  const longhaul::cuda::Device& device = stream.device();
  const KernelTable& kernels = *device.table().codec_kernels;
  LH_RETURN_IF_ERROR(device.Check(kernels.begin_predict(device.index(), &args, stream.handle()),
                                  "queueing the encoder of predict"));
  const Context within = predict::ContextWithin(context);
  const DeviceSpan blob_within = From(blob, kBlobHeaderBytes + args.other);
  const DeviceSpan workspace_within = From(workspace, Scratch(in.shape, ParamsOf(parts.kind)).rest);
  const MutableTensorView values{args.values_dev, Dtype::kF32, in.shape};
  const TensorView residual =
      tables == nullptr ? in : TensorView{values.data, values.dtype, values.shape};
  LH_RETURN_IF_ERROR(parts.codec.Encode(residual, within, workspace_within, blob_within, stream));
  if (learns) {
    LH_RETURN_IF_ERROR(
        DecodeOwn(parts, blob_within, workspace_within, values, args.fault_dev, stream));
  }
  LH_RETURN_IF_ERROR(device.Check(kernels.finish_predict(device.index(), &args, stream.handle()),
                                  "queueing the encoder of predict"));
  if (!learns) return absl::OkStatus();
  return device.Check(kernels.learn_predict(device.index(), &args, stream.handle()),
                      "queueing what predict learns");
}

Status DecodePredicted(const PredictParts& parts, DeviceSpan blob, DeviceSpan workspace,
                       const MutableTensorView& out, uint32_t* fault_dev,
                       const longhaul::cuda::Stream& stream, const DeviceTables* tables) {
  const predict::Front front = FrontWith(tables);
  const TensorArgs tensor{out.data, static_cast<uint32_t>(out.dtype), out.shape.samples,
                          out.shape.tokens, out.shape.channels};
  PredictArgs args = MakePredict(parts.kind, tensor, out.shape, front, workspace, blob, tables);
  const uint64_t offset = kBlobHeaderBytes + args.other;
  if (blob.bytes < offset + kBlobHeaderBytes) {
    return absl::InvalidArgumentError(
        fmt::format("expected a blob of predict of at least {} bytes, got {}",
                    offset + kBlobHeaderBytes, blob.bytes));
  }
  args.decodes = 1;
  args.fault_dev = fault_dev;
  if (out.dtype == Dtype::kF32) args.values_dev = static_cast<float*>(out.data);
  const DeviceSpan blob_within = From(blob, offset);
  const BlobHeader header =
      HeaderWithin(parts, front, out.shape, parts.kind.source_dtype, blob_within.bytes);
  WriteBlobHeader(header, std::as_writable_bytes(std::span(args.within.words)));
  const longhaul::cuda::Device& device = stream.device();
  const KernelTable& kernels = *device.table().codec_kernels;
  LH_RETURN_IF_ERROR(device.Check(kernels.begin_predict(device.index(), &args, stream.handle()),
                                  "queueing the decoder of predict"));
  const MutableTensorView values =
      tables == nullptr ? out : MutableTensorView{args.values_dev, Dtype::kF32, out.shape};
  LH_RETURN_IF_ERROR(parts.codec.Decode(
      std::as_bytes(std::span(args.within.words)), blob_within,
      From(workspace, Scratch(out.shape, ParamsOf(parts.kind)).rest), values, fault_dev, stream));
  LH_RETURN_IF_ERROR(device.Check(kernels.finish_predict(device.index(), &args, stream.handle()),
                                  "queueing the decoder of predict"));
  if (front.kind != predict::Kind::kLearned) return absl::OkStatus();
  return device.Check(kernels.learn_predict(device.index(), &args, stream.handle()),
                      "queueing what predict learns");
}

}  // namespace longhaul::codec::cuda
