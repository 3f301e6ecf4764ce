#include "python/ops/predict_link.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>

#include <limits>

#include "codec/predict/factory.h"
#include "codec/predict/format.h"
#include "python/ops/on_device.h"
#include "python/ops/tensors.h"

namespace longhaul::ops {
namespace {

using codec::cuda::DeviceTables;
using codec::predict::Tables;
using codec::predict::TablesShape;

uint64_t TokensOf(const codec::Shape& shape) {
  return uint64_t{shape.samples} * shape.tokens;
}

uint32_t VocabularyOf(int64_t vocabulary) {
  TORCH_CHECK_VALUE(vocabulary > 0 && vocabulary <= std::numeric_limits<uint32_t>::max(),
                    "expected a vocabulary of 1 to 4294967295 ids, got ", vocabulary);
  return static_cast<uint32_t>(vocabulary);
}

}  // namespace

PredictLink::PredictLink(const std::string& codec, int64_t vocabulary,
                         const std::vector<int64_t>& shape, const std::string& device)
    : codec_(FindCodec(codec)),
      shape_(ShapeOf(shape)),
      vocabulary_(VocabularyOf(vocabulary)),
      device_(device) {
  TORCH_CHECK_VALUE(codec_->cpu().TableRows(vocabulary_) > 0, "expected a codec of predict, got ",
                    codec_->cpu().name());
  TORCH_CHECK_VALUE(TokensOf(shape_) > 0 && shape_.channels > 0,
                    "expected messages with tokens and channels, got ", at::IntArrayRef(shape));
  fixed_size_ = codec::predict::OtherOf(codec_->cpu())->fixed_size();
  const auto like = at::empty({0}, at::TensorOptions(device_).dtype(at::kByte));
  blob_ = NewBytes(codec_->MaxEncodedBytes(shape_), like);
  const TablesShape tables =
      codec::predict::TablesShapeFor(codec_->cpu(), vocabulary_, shape_.channels);
  if (!device_.is_cuda()) {
    workspace_ = NewBytes(codec_->cpu().WorkspaceBytes(shape_), like);
    for (std::optional<Tables>* end : {&sender_, &receiver_}) {
      *end = ValueOrThrow(Tables::Create(tables));
    }
    return;
  }
  const c10::DeviceGuard guard(device_);
  workspace_ = NewBytes(codec_->WorkspaceBytes(shape_), like);
  fault_ = at::zeros({1}, like.options().dtype(at::kInt));
  cuda::Stream stream = CurrentStream(like.device());
  for (std::optional<DeviceTables>* end : {&sender_on_gpu_, &receiver_on_gpu_}) {
    *end = ValueOrThrow(DeviceTables::Create(&stream, tables, TokensOf(shape_)));
  }
}

int64_t PredictLink::EncodedBytes() const {
  const uint64_t wide = codec::predict::OtherOffset(shape_, 4);
  const uint64_t own = codec::predict::OtherOffset(shape_, codec::predict::BytesOfId(vocabulary_));
  return static_cast<int64_t>(codec_->MaxEncodedBytes(shape_) - wide + own);
}

at::Tensor PredictLink::Transfer(const at::Tensor& x, const at::Tensor& ids, bool learns) {
  TORCH_CHECK_VALUE(x.dim() == 3 && x.size(0) % shape_.samples == 0 && x.size(1) == shape_.tokens &&
                        x.size(2) == shape_.channels && x.device().type() == device_.type(),
                    "expected messages of ", shape_.samples, " x ", shape_.tokens, " x ",
                    shape_.channels, " on ", device_, ", got ", x.sizes(), " on ", x.device());
  TORCH_CHECK_VALUE(ids.device().is_cpu() && ids.dim() == 2 && ids.size(0) == x.size(0) &&
                        ids.size(1) == x.size(1),
                    "expected the ids of ", x.size(0), " x ", x.size(1), " tokens on the CPU, got ",
                    ids.sizes(), " on ", ids.device());
  DtypeOf(x.scalar_type());
  if (x.numel() == 0) return x.clone();
  TORCH_CHECK_VALUE(ids.min().item<int64_t>() >= 0 && ids.max().item<int64_t>() < vocabulary_,
                    "expected ids from 0 to ", vocabulary_ - 1, ", got ", ids.min().item<int64_t>(),
                    " to ", ids.max().item<int64_t>());
  at::Tensor out = at::empty(x.sizes(), x.options());
  const at::Tensor numbers = ids.to(at::kInt).contiguous();
  if (device_.is_cuda()) {
    TransferOnDevice(x.contiguous(), numbers, learns, out);
  } else {
    TransferOnHost(x.contiguous(), numbers, learns, out);
  }
  return out;
}

void PredictLink::TransferOnHost(const at::Tensor& x, const at::Tensor& ids, bool learns,
                                 const at::Tensor& out) {
  const codec::Dtype dtype = DtypeOf(x.scalar_type());
  codec::Context context;
  context.learns = learns;
  for (int64_t first = 0; first < x.size(0); first += shape_.samples) {
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.narrow(0, first, shape_.samples).data_ptr();
    };
    context.token_ids = {static_cast<const uint32_t*>(part(ids)), TokensOf(shape_)};
    context.tables = &*sender_;
    codec::EncodeResult result;
    ThrowIfError(codec_->cpu().Encode({part(x), dtype, shape_}, context, HostSpanOf(workspace_),
                                      HostSpanOf(blob_), &result));
    context.tables = &*receiver_;
    ThrowIfError(codec_->cpu().Decode(HostSpanOf(blob_).first(result.bytes), context,
                                      HostSpanOf(workspace_), {part(out), dtype, shape_}));
  }
}

void PredictLink::TransferOnDevice(const at::Tensor& x, const at::Tensor& ids, bool learns,
                                   const at::Tensor& out) {
  const c10::DeviceGuard guard(x.device());
  cuda::Stream stream = CurrentStream(x.device());
  // From pinned memory, which PyTorch keeps until the copy is done.
  const at::Tensor on_device = ids.pin_memory().to(x.device(), at::kInt, /*non_blocking=*/true);
  const codec::CodecKind kind = codec_->cpu().kind();
  codec::BlobHeader expected = {.codec = kind.id, .parameters = kind.parameters};
  expected.source_dtype = DtypeOf(x.scalar_type());
  expected.shape = shape_;
  expected.payload_bytes = static_cast<uint64_t>(EncodedBytes()) - codec::kBlobHeaderBytes;
  HeaderBytes header;
  codec::WriteBlobHeader(expected, header);
  const codec::cuda::DeviceSpan workspace = DeviceSpanOf(workspace_);
  codec::Context context;
  context.learns = learns;
  for (int64_t first = 0; first < x.size(0); first += shape_.samples) {
    const auto part = [&](const at::Tensor& tensor) {
      return tensor.narrow(0, first, shape_.samples).data_ptr();
    };
    ThrowIfError(sender_on_gpu_->LoadFromDevice(static_cast<const uint32_t*>(part(on_device)),
                                                TokensOf(shape_), learns, &stream));
    ThrowIfError(codec_->Encode({part(x), expected.source_dtype, shape_}, {}, workspace,
                                DeviceSpanOf(blob_), stream, {}, &*sender_on_gpu_));
    if (!fixed_size_) header = ReadHeader(blob_);
    ThrowIfError(receiver_on_gpu_->Load(context, &stream));
    ThrowIfError(codec_->Decode(header, {blob_.data_ptr(), codec::BlobBytes(header)}, workspace,
                                {part(out), expected.source_dtype, shape_},
                                static_cast<uint32_t*>(fault_.data_ptr()), stream, {},
                                &*receiver_on_gpu_));
  }
}

void PredictLink::Check() const {
  TORCH_CHECK_VALUE(!device_.is_cuda() || fault_.item<int>() == 0,
                    "the receiving end of a link has refused a blob of ", codec_->cpu().name());
}

}  // namespace longhaul::ops
