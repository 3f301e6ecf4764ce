#include "codec/cuda/cuda_codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "codec/aqsgd/format.h"
#include "codec/arguments.h"
#include "codec/cuda/cuda_predict.h"
#include "codec/cuda/kernel_table.h"
#include "codec/cuda/taco_args.h"
#include "codec/fixed/format.h"
#include "codec/gauss/format.h"
#include "codec/plain/format.h"
#include "codec/registry.h"
#include "codec/taco/format.h"
#include "codec/tah/format.h"
#include "codec/zip/format.h"

namespace longhaul::codec::cuda {
namespace {

constexpr size_t kBlobAlignment = 16;
// Of the header's count of tiles that are not finite.
constexpr size_t kNonfiniteOffset = 48;

// The codecs' checks (arguments.h) are of the values; this one is of device memory.
Status CheckMemory(std::string_view what, const void* data, size_t bytes, size_t needed,
                   size_t alignment) {
  if (needed == 0) return absl::OkStatus();
  if (data == nullptr || bytes < needed || reinterpret_cast<uintptr_t>(data) % alignment != 0) {
    return absl::InvalidArgumentError(
        fmt::format("expected {} of {} bytes of device memory aligned to {}, got {} bytes at {}",
                    what, needed, alignment, bytes, data));
  }
  return absl::OkStatus();
}

void SetNoise(const Context& context, uint32_t (&block)[4]) {
  const RoundingNoise noise(context);
  std::copy(noise.block().begin(), noise.block().end(), block);
}

TensorArgs MakeTensor(void* data, Dtype dtype, const Shape& shape) {
  return {data, static_cast<uint32_t>(dtype), shape.samples, shape.tokens, shape.channels};
}

PlainArgs MakePlain(CodecId id, const TensorArgs& tensor, void* blob) {
  PlainArgs args{};
  args.tensor = tensor;
  args.wire_dtype = static_cast<uint32_t>(plain::WireDtype(id));
  args.blob_dev = static_cast<unsigned char*>(blob);
  return args;
}

FixedArgs MakeFixed(const fixed::Params& params, const Shape& shape, const TensorArgs& tensor,
                    void* blob) {
  const fixed::Layout layout = fixed::MakeLayout(shape, params);
  FixedArgs args{};
  args.tensor = tensor;
  args.bits = params.bits;
  args.tile = params.tile;
  args.stochastic = params.rounding == Rounding::kStochastic ? 1 : 0;
  args.tiles_per_token = MakeDivisor(layout.tiles_per_token);
  args.tokens = MakeDivisor(shape.tokens);
  args.scales = layout.scales;
  args.codes = layout.codes;
  args.end = layout.end;
  args.blob_dev = static_cast<unsigned char*>(blob);
  return args;
}

TahArgs MakeTah(const tah::Params& params, const Shape& shape, const TensorArgs& tensor,
                void* blob) {
  const tah::Layout layout = tah::MakeLayout(shape, params);
  TahArgs args{};
  args.tensor = tensor;
  args.tile = params.tile;
  args.stochastic = params.rounding == Rounding::kStochastic ? 1 : 0;
  args.tau = params.tau;
  args.top_exponent = tah::TopExponent(params);
  args.token_tiles = static_cast<uint32_t>(layout.token_tiles);
  args.token_allocs = MakeDivisor(layout.token_allocs);
  args.alloc_tiles = MakeDivisor(layout.alloc_tiles);
  args.pivot_bits = layout.pivot_bits;
  args.tiles = layout.tiles;
  args.allocs = layout.allocs;
  args.fours = layout.fours;
  args.pivot_bytes = layout.pivot_bytes;
  args.precision_bytes = layout.precision_bytes;
  args.scales = layout.scales;
  args.zeros = layout.zeros;
  args.pivots = layout.pivots;
  args.precision = layout.precision;
  args.codes = layout.codes;
  args.fourth_bits = layout.fourth_bits;
  args.end = layout.end;
  args.blob_dev = static_cast<unsigned char*>(blob);
  return args;
}

GaussArgs MakeGauss(const gauss::Params& params, const Shape& shape, const TensorArgs& tensor,
                    void* blob) {
  const gauss::Layout layout = gauss::MakeLayout(shape, params);
  const uint64_t tokens = uint64_t{shape.samples} * shape.tokens;
  const uint64_t short_of_token = layout.last_block < params.block ? 1 : 0;
  const uint64_t whole_of_token = layout.token_blocks - short_of_token;
  GaussArgs args{};
  args.tensor = tensor;
  args.bits = params.bits;
  args.block = params.block;
  args.last_block = layout.last_block;
  args.whole_blocks = tokens * whole_of_token;
  args.last_blocks = tokens * short_of_token;
  args.whole_of_token = MakeDivisor(std::max<uint64_t>(whole_of_token, 1));
  args.blocks_of_token = MakeDivisor(layout.token_blocks);
  args.tokens = MakeDivisor(shape.tokens);
  args.token_bytes = layout.token_bytes;
  args.scales = layout.scales;
  args.codes = layout.codes;
  args.end = layout.end;
  args.blob_dev = static_cast<unsigned char*>(blob);
  return args;
}

AqsgdArgs MakeAqsgd(const aqsgd::Params& params, const Shape& shape, const TensorArgs& tensor,
                    void* blob, void* scratch, const DeviceMessages& messages) {
  const aqsgd::Layout layout = aqsgd::MakeLayout(shape, params);
  AqsgdArgs args{};
  args.tensor = tensor;
  args.bits = params.bits;
  args.tiles_per_token = MakeDivisor(layout.tiles_per_token);
  args.tokens = MakeDivisor(shape.tokens);
  args.checks = layout.checks;
  args.kinds = layout.kinds;
  args.exponents = layout.exponents;
  args.variable = layout.variable;
  args.scales_bytes = layout.scales_bytes;
  args.whole_bytes = layout.whole_bytes;
  args.difference_bytes = layout.difference_bytes;
  args.record_bytes = aqsgd::RecordBytes(shape);
  args.blob_dev = static_cast<unsigned char*>(blob);
  args.entries_dev = static_cast<const aqsgd::Entry*>(messages.entries.data_dev);
  args.records_dev = static_cast<unsigned char*>(messages.records.data_dev);
  args.scratch_dev = static_cast<unsigned char*>(scratch);
  return args;
}

ZipArgs MakeZip(const TensorArgs& tensor, const Shape& shape, void* blob, void* scratch) {
  const zip::Layout layout = zip::MakeLayout(shape.elements());
  ZipArgs args{};
  args.tensor = tensor;
  args.elements = shape.elements();
  args.groups = layout.groups;
  args.lows = layout.lows;
  args.signs = layout.signs;
  args.codes = layout.codes;
  args.plane_bytes = layout.plane_bytes;
  args.escapes = layout.escapes;
  args.raw = layout.raw;
  args.most_escapes = layout.most_escapes;
  args.may_be_smaller = layout.may_be_smaller ? 1 : 0;
  args.blob_dev = static_cast<unsigned char*>(blob);
  args.scratch_dev = static_cast<unsigned char*>(scratch);
  return args;
}

TacoArgs MakeTaco(const taco::Params& params, const TensorArgs& tensor, const Shape& shape,
                  void* blob) {
  TacoArgs args{};
  args.blob_dev = static_cast<unsigned char*>(blob);
  args.flat = MakeTacoFlat(params, tensor.data_dev, static_cast<Dtype>(tensor.dtype),
                           shape.elements(), args.blob_dev + kBlobHeaderBytes);
  args.flat.nonfinite_dev = reinterpret_cast<unsigned long long*>(args.blob_dev + kNonfiniteOffset);
  return args;
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

StatusOr<CudaCodec> CudaCodec::Create(std::string_view text) {
  LH_ASSIGN_OR_RETURN(std::unique_ptr<const Codec> cpu, ParseCodec(text));
  // What an empty tensor becomes names the codec and its parameters.
  std::array<std::byte, kBlobHeaderBytes> blob{};
  EncodeResult result;
  const Shape empty;
  std::vector<std::byte> workspace(cpu->WorkspaceBytes(empty));
  LH_RETURN_IF_ERROR(cpu->Encode({nullptr, Dtype::kF32, empty}, {}, workspace, blob, &result));
  LH_ASSIGN_OR_RETURN(const BlobHeader kind, ParseBlobHeader(blob));
  std::shared_ptr<const CudaCodec> within;
  if (kind.codec == CodecId::kPredict) {
    const std::string_view name = cpu->name();
    LH_ASSIGN_OR_RETURN(CudaCodec other, Create(name.substr(name.find('/') + 1)));
    within = std::make_shared<const CudaCodec>(std::move(other));
  }
  return CudaCodec(std::move(cpu), kind, std::move(within));
}

size_t CudaCodec::WorkspaceBytes(const Shape& shape) const {
  if (Empty(shape) || !CheckShape(shape).ok()) return 0;
  if (within_) return PredictWorkspaceBytes(shape, kind_) + within_->WorkspaceBytes(shape);
  if (kind_.codec == CodecId::kGauss) {
    const StatusOr<gauss::Params> params = gauss::FromHeader(kind_.parameters);
    LH_CHECK(params.ok(), "{}", Message(params.status()));  // they are the codec's own
    return GaussScratchBytes(shape.samples,
                             shape.samples * gauss::MakeLayout(shape, *params).blocks);
  }
  if (kind_.codec == CodecId::kAqsgd) return AqsgdScratchBytes(shape.samples, shape.channels);
  if (kind_.codec == CodecId::kZip) {
    return ZipScratchBytes(zip::MakeLayout(shape.elements()).groups);
  }
  if (kind_.codec == CodecId::kFixed) {
    const StatusOr<fixed::Params> params = fixed::FromHeader(kind_.parameters);
    LH_CHECK(params.ok(), "{}", Message(params.status()));  // they are the codec's own
    return FixedScratchBytes(shape.samples, fixed::MakeLayout(shape, *params).tiles);
  }
  if (kind_.codec != CodecId::kTah) return 0;
  const StatusOr<tah::Params> params = tah::FromHeader(kind_.parameters);
  LH_CHECK(params.ok(), "{}", Message(params.status()));  // they are the codec's own
  return TahScratchBytes(shape.samples, tah::MakeLayout(shape, *params).allocs);
}

Status CudaCodec::Encode(const TensorView& in, const Context& context, DeviceSpan workspace,
                         DeviceSpan blob, const longhaul::cuda::Stream& stream,
                         const DeviceMessages& messages, const DeviceTables* tables) const {
  LH_RETURN_IF_ERROR(CheckTensor(in.data, in.dtype, in.shape));
  LH_RETURN_IF_ERROR(CheckMemory("a workspace", workspace.data_dev, workspace.bytes,
                                 WorkspaceBytes(in.shape), kWorkspaceAlignment));
  const size_t bytes = MaxEncodedBytes(in.shape);
  LH_RETURN_IF_ERROR(CheckMemory("an output", blob.data_dev, blob.bytes, bytes, kBlobAlignment));
  LH_RETURN_IF_ERROR(CheckMessages(messages, in.shape.samples, cpu_->MessageBytes(in.shape)));
  if (kind_.codec == CodecId::kAqsgd && !context.sample_ids.empty() &&
      messages.entries.bytes == 0) {
    return absl::InvalidArgumentError(
        "aqsgd needs DeviceMessages where the samples have ids; there are none");
  }
  LH_RETURN_IF_ERROR(CheckTables(tables, kind_, in.shape));
  BlobHeader header = kind_;
  header.source_dtype = in.dtype;
  header.shape = in.shape;
  header.payload_bytes = bytes - kBlobHeaderBytes;
  HeaderArgs header_args;
  WriteBlobHeader(header, std::as_writable_bytes(std::span(header_args.words)));

  const longhaul::cuda::Device& device = stream.device();
  const KernelTable& kernels = *device.table().codec_kernels;
  if (Empty(in.shape)) {
    return device.Check(
        kernels.write_header(device.index(), &header_args,
                             static_cast<unsigned char*>(blob.data_dev), stream.handle()),
        "queueing an encoder");
  }
  if (within_) {
    return EncodePredicted({.codec = *within_, .kind = kind_, .header = header_args}, in, context,
                           workspace, blob, stream, tables);
  }
  // The encoders only read it.
  const TensorArgs tensor = MakeTensor(const_cast<void*>(in.data), in.dtype, in.shape);
  if (kind_.codec == CodecId::kFixed) {
    LH_ASSIGN_OR_RETURN(const fixed::Params params, fixed::FromHeader(kind_.parameters));
    FixedArgs args = MakeFixed(params, in.shape, tensor, blob.data_dev);
    args.header = header_args;
    args.scratch_dev = static_cast<unsigned char*>(workspace.data_dev);
    SetNoise(context, args.noise);
    return device.Check(kernels.encode_fixed(device.index(), &args, stream.handle()),
                        "queueing the encoder of fixed");
  }
  if (kind_.codec == CodecId::kTah) {
    LH_ASSIGN_OR_RETURN(const tah::Params params, tah::FromHeader(kind_.parameters));
    TahArgs args = MakeTah(params, in.shape, tensor, blob.data_dev);
    args.header = header_args;
    args.scratch_dev = static_cast<unsigned char*>(workspace.data_dev);
    SetNoise(context, args.noise);
    return device.Check(kernels.encode_tah(device.index(), &args, stream.handle()),
                        "queueing the encoder of tah");
  }
  if (kind_.codec == CodecId::kGauss) {
    LH_ASSIGN_OR_RETURN(const gauss::Params params, gauss::FromHeader(kind_.parameters));
    GaussArgs args = MakeGauss(params, in.shape, tensor, blob.data_dev);
    args.header = header_args;
    args.scratch_dev = static_cast<unsigned char*>(workspace.data_dev);
    return device.Check(kernels.encode_gauss(device.index(), &args, stream.handle()),
                        "queueing the encoder of gauss");
  }
  if (kind_.codec == CodecId::kAqsgd) {
    LH_ASSIGN_OR_RETURN(const aqsgd::Params params, aqsgd::FromHeader(kind_.parameters));
    AqsgdArgs args =
        MakeAqsgd(params, in.shape, tensor, blob.data_dev, workspace.data_dev, messages);
    args.header = header_args;
    return device.Check(kernels.encode_aqsgd(device.index(), &args, stream.handle()),
                        "queueing the encoder of aqsgd");
  }
  if (kind_.codec == CodecId::kZip) {
    ZipArgs args = MakeZip(tensor, in.shape, blob.data_dev, workspace.data_dev);
    args.header = header_args;
    return device.Check(kernels.encode_zip(device.index(), &args, stream.handle()),
                        "queueing the encoder of zip");
  }
  if (kind_.codec == CodecId::kTaco) {
    LH_ASSIGN_OR_RETURN(const taco::Params params, taco::FromHeader(kind_.parameters));
    TacoArgs args = MakeTaco(params, tensor, in.shape, blob.data_dev);
    args.header = header_args;
    return device.Check(kernels.encode_taco(device.index(), &args, stream.handle()),
                        "queueing the encoder of taco");
  }
  PlainArgs args = MakePlain(kind_.codec, tensor, blob.data_dev);
  args.header = header_args;
  return device.Check(kernels.encode_plain(device.index(), &args, stream.handle()),
                      "queueing an encoder");
}

Status CudaCodec::Decode(std::span<const std::byte> header, DeviceSpan blob, DeviceSpan workspace,
                         const MutableTensorView& out, uint32_t* fault_dev,
                         const longhaul::cuda::Stream& stream, const DeviceMessages& messages,
                         const DeviceTables* tables) const {
  LH_RETURN_IF_ERROR(CheckTensor(out.data, out.dtype, out.shape));
  LH_RETURN_IF_ERROR(CheckMemory("a workspace", workspace.data_dev, workspace.bytes,
                                 WorkspaceBytes(out.shape), kWorkspaceAlignment));
  LH_RETURN_IF_ERROR(
      CheckMemory("a word for faults", fault_dev, sizeof(uint32_t), sizeof(uint32_t), 4));
  if (header.size() != kBlobHeaderBytes) {
    return absl::InvalidArgumentError(
        fmt::format("expected a header of {} bytes, got {}", kBlobHeaderBytes, header.size()));
  }
  LH_ASSIGN_OR_RETURN(const BlobHeader parsed, ParseBlobHeader(header, blob.bytes));
  LH_RETURN_IF_ERROR(CheckBlob(parsed, kind_.codec, kind_.parameters, cpu_->name(), out.shape));
  LH_RETURN_IF_ERROR(CheckMessages(messages, out.shape.samples, cpu_->MessageBytes(out.shape)));
  LH_RETURN_IF_ERROR(CheckTables(tables, kind_, out.shape));
  const size_t least = cpu_->MinEncodedBytes(out.shape);
  const size_t most = MaxEncodedBytes(out.shape);
  if (blob.bytes < least || blob.bytes > most) {
    return absl::InvalidArgumentError(
        fmt::format("a blob of {} with this shape has {}{} bytes; {} came", cpu_->name(), least,
                    least == most ? "" : fmt::format(" to {}", most), blob.bytes));
  }
  if (Empty(out.shape)) return absl::OkStatus();
  LH_RETURN_IF_ERROR(CheckMemory("a blob", blob.data_dev, blob.bytes, blob.bytes, kBlobAlignment));
  if (within_) {
    return DecodePredicted({.codec = *within_, .kind = parsed}, blob, workspace, out, fault_dev,
                           stream, tables);
  }
  const longhaul::cuda::Device& device = stream.device();
  const KernelTable& kernels = *device.table().codec_kernels;
  const TensorArgs tensor = MakeTensor(out.data, out.dtype, out.shape);
  if (kind_.codec == CodecId::kFixed) {
    LH_ASSIGN_OR_RETURN(const fixed::Params params, fixed::FromHeader(kind_.parameters));
    FixedArgs args = MakeFixed(params, out.shape, tensor, blob.data_dev);
    args.fault_dev = fault_dev;
    return device.Check(kernels.decode_fixed(device.index(), &args, stream.handle()),
                        "queueing the decoder of fixed");
  }
  if (kind_.codec == CodecId::kTah) {
    LH_ASSIGN_OR_RETURN(const tah::Params params, tah::FromHeader(kind_.parameters));
    TahArgs args = MakeTah(params, out.shape, tensor, blob.data_dev);
    args.fault_dev = fault_dev;
    return device.Check(kernels.decode_tah(device.index(), &args, stream.handle()),
                        "queueing the decoder of tah");
  }
  if (kind_.codec == CodecId::kGauss) {
    LH_ASSIGN_OR_RETURN(const gauss::Params params, gauss::FromHeader(kind_.parameters));
    GaussArgs args = MakeGauss(params, out.shape, tensor, blob.data_dev);
    args.fault_dev = fault_dev;
    return device.Check(kernels.decode_gauss(device.index(), &args, stream.handle()),
                        "queueing the decoder of gauss");
  }
  if (kind_.codec == CodecId::kAqsgd) {
    LH_ASSIGN_OR_RETURN(const aqsgd::Params params, aqsgd::FromHeader(kind_.parameters));
    AqsgdArgs args =
        MakeAqsgd(params, out.shape, tensor, blob.data_dev, workspace.data_dev, messages);
    args.payload_bytes = parsed.payload_bytes;
    args.fault_dev = fault_dev;
    return device.Check(kernels.decode_aqsgd(device.index(), &args, stream.handle()),
                        "queueing the decoder of aqsgd");
  }
  if (kind_.codec == CodecId::kZip) {
    ZipArgs args = MakeZip(tensor, out.shape, blob.data_dev, workspace.data_dev);
    if (parsed.payload_bytes != args.raw) {
      args.payload_bytes = parsed.payload_bytes;
      args.fault_dev = fault_dev;
      return device.Check(kernels.decode_zip(device.index(), &args, stream.handle()),
                          "queueing the decoder of zip");
    }
  }
  if (kind_.codec == CodecId::kTaco) {
    LH_ASSIGN_OR_RETURN(const taco::Params params, taco::FromHeader(kind_.parameters));
    const TacoArgs args = MakeTaco(params, tensor, out.shape, blob.data_dev);
    return device.Check(kernels.decode_taco(device.index(), &args, stream.handle()),
                        "queueing the decoder of taco");
  }
  const PlainArgs args = MakePlain(kind_.codec, tensor, blob.data_dev);
  return device.Check(kernels.decode_plain(device.index(), &args, stream.handle()),
                      "queueing a decoder");
}

Status CudaCodec::DecodeUnseen(DeviceSpan blob, const MutableTensorView& out, uint32_t* fault_dev,
                               const longhaul::cuda::Stream& stream) const {
  if (kind_.codec != CodecId::kZip) {
    return absl::UnimplementedError(
        fmt::format("{} cannot decode a blob whose header is on the device alone", cpu_->name()));
  }
  LH_RETURN_IF_ERROR(CheckTensor(out.data, out.dtype, out.shape));
  if (Empty(out.shape)) return absl::OkStatus();
  LH_RETURN_IF_ERROR(
      CheckMemory("a blob", blob.data_dev, blob.bytes, kBlobHeaderBytes, kBlobAlignment));
  const longhaul::cuda::Device& device = stream.device();
  ZipArgs args = MakeZip(MakeTensor(out.data, out.dtype, out.shape), out.shape, blob.data_dev,
                         /*scratch=*/nullptr);
  args.most_payload_bytes = blob.bytes - kBlobHeaderBytes;
  args.fault_dev = fault_dev;
  return device.Check(
      device.table().codec_kernels->decode_zip(device.index(), &args, stream.handle()),
      "queueing the decoder of zip");
}

}  // namespace longhaul::codec::cuda
