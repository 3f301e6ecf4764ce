#include "python/ops/on_device.h"

#include <ATen/Functions.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/module.h"
#include "base/cuda/stream.h"
#include "python/ops/tensors.h"

namespace longhaul::ops {
namespace {

using codec::cuda::DeviceSpan;

constexpr char kInThisLibrary = 0;

// The kernels are taken from the module beside this library.
cuda::Device OpenDevice(c10::DeviceIndex index) {
  static auto& mutex = *new std::mutex;
  static auto& devices = *new std::map<c10::DeviceIndex, cuda::Device>;
  const std::lock_guard lock(mutex);
  const auto known = devices.find(index);
  if (known != devices.end()) return known->second;
  const cuda::DeviceTable* const table =
      ValueOrThrow(cuda::LoadModule(cuda::ModulePathBeside(&kInThisLibrary)));
  return devices
      .emplace(index, ValueOrThrow(cuda::Device::Open(table, static_cast<uint32_t>(index))))
      .first->second;
}

}  // namespace

cuda::Stream CurrentStream(const c10::Device& device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  return cuda::Stream::Borrow(OpenDevice(device.index()), guard.getStream(device).native_handle());
}

at::Tensor NewBytes(size_t count, const at::Tensor& like) {
  return at::empty({static_cast<int64_t>(count)}, like.options().dtype(at::kByte));
}

DeviceSpan DeviceSpanOf(const at::Tensor& bytes) {
  return {bytes.data_ptr(), static_cast<size_t>(bytes.numel())};
}

std::span<std::byte> HostSpanOf(const at::Tensor& bytes) {
  return {static_cast<std::byte*>(bytes.data_ptr()), static_cast<size_t>(bytes.numel())};
}

void EncodeTo(const at::Tensor& x, const codec::Shape& shape, const codec::cuda::CudaCodec& codec,
              const codec::Context& context, const at::Tensor& buffer) {
  const codec::TensorView view{x.const_data_ptr(), DtypeOf(x.scalar_type()), shape};
  if (x.is_cuda()) {
    const c10::DeviceGuard guard(x.device());
    const at::Tensor workspace = NewBytes(codec.WorkspaceBytes(shape), x);
    ThrowIfError(codec.Encode(view, context, DeviceSpanOf(workspace), DeviceSpanOf(buffer),
                              CurrentStream(x.device())));
    return;
  }
  const at::Tensor workspace = NewBytes(codec.cpu().WorkspaceBytes(shape), x);
  codec::EncodeResult result;
  ThrowIfError(
      codec.cpu().Encode(view, context, HostSpanOf(workspace), HostSpanOf(buffer), &result));
}

HeaderBytes ReadHeader(const at::Tensor& blob) {
  HeaderBytes header{};
  const int64_t there = std::min<int64_t>(blob.numel(), header.size());
  const at::Tensor start = blob.narrow(0, 0, there).to(at::kCPU);
  if (there > 0) std::memcpy(header.data(), start.const_data_ptr(), static_cast<size_t>(there));
  return header;
}

HeaderBytes HeaderOfFixedSize(const at::Tensor& x, const codec::Shape& shape,
                              const codec::cuda::CudaCodec& codec) {
  const codec::CodecKind kind = codec.cpu().kind();
  codec::BlobHeader header = {.codec = kind.id, .parameters = kind.parameters};
  header.source_dtype = DtypeOf(x.scalar_type());
  header.shape = shape;
  header.payload_bytes = codec.MaxEncodedBytes(shape) - codec::kBlobHeaderBytes;
  HeaderBytes bytes{};
  codec::WriteBlobHeader(header, bytes);
  return bytes;
}

void DecodeTo(const at::Tensor& blob, const HeaderBytes& header, const codec::Shape& shape,
              const codec::cuda::CudaCodec& codec, Origin origin, const at::Tensor& out) {
  const codec::MutableTensorView view{out.data_ptr(), DtypeOf(out.scalar_type()), shape};
  if (!blob.is_cuda()) {
    const at::Tensor workspace = NewBytes(codec.cpu().WorkspaceBytes(shape), blob);
    ThrowIfError(codec.cpu().Decode(HostSpanOf(blob), {}, HostSpanOf(workspace), view));
    return;
  }
  const c10::DeviceGuard guard(blob.device());
  const at::Tensor workspace = NewBytes(codec.WorkspaceBytes(shape), blob);
  const at::Tensor fault = at::zeros({1}, blob.options().dtype(at::kInt));
  ThrowIfError(codec.Decode(header, DeviceSpanOf(blob), DeviceSpanOf(workspace), view,
                            static_cast<uint32_t*>(fault.data_ptr()),
                            CurrentStream(blob.device())));
  if (origin == Origin::kOurs) return;
  TORCH_CHECK_VALUE(fault.item<int>() == 0, "expected a blob of ", codec.cpu().name(),
                    "; its payload has bytes that this codec never writes");
}

}  // namespace longhaul::ops
