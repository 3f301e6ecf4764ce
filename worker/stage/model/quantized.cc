#include "worker/stage/model/quantized.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <span>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/cuda/stream.h"
#include "codec/cuda/cuda_quantized.h"
#include "codec/quantized/format.h"
#include "codec/quantized/int8.h"
#include "codec/quantized/nf4.h"
#include "worker/stage/device/torch_scope.h"

namespace longhaul::worker {
namespace {

namespace quantized = codec::quantized;

constexpr uint64_t kElementsOfAThread = 1 << 18;  // elements
constexpr unsigned kMostQuantizingThreads = 16;

quantized::MatrixShape MatrixShapeOf(int64_t rows, int64_t columns) {
  return {static_cast<uint64_t>(rows), static_cast<uint64_t>(columns)};
}

uint64_t BytesToStore(QuantizeBase kind, int64_t rows, int64_t columns) {
  const auto [of_rows, of_columns] = MatrixShapeOf(rows, columns);
  if (kind == QuantizeBase::kInt8) return quantized::Int8Layout(of_rows, of_columns).bytes;
  return quantized::Nf4Layout(of_rows * of_columns).bytes;
}

std::byte* StoredIn(const at::Tensor& stored) {
  return reinterpret_cast<std::byte*>(stored.data_ptr<uint8_t>());
}

// Calls work(begin, end) for ranges that together are [0, count), and returns whether all calls
// returned true. `elements`: of all ranges.
template <class Work>
bool OnThreads(uint64_t count, uint64_t elements, const Work& work) {
  const uint64_t most = std::clamp(std::thread::hardware_concurrency(), 1u, kMostQuantizingThreads);
  const uint64_t pieces = std::clamp<uint64_t>(elements / kElementsOfAThread, 1, most);
  std::atomic<bool> all = true;
  std::vector<std::jthread> others;
  for (uint64_t piece = 0; piece < pieces; ++piece) {
    const auto run = [&, begin = count * piece / pieces, end = count * (piece + 1) / pieces] {
      if (!work(begin, end)) all = false;
    };
    if (piece + 1 == pieces) {
      run();
    } else {
      others.emplace_back(run);
    }
  }
  others.clear();  // waits
  return all;
}

// The stream on which this thread computes.
cuda::Stream CurrentStreamOf(const cuda::Device& gpu, const at::Tensor& tensor) {
  const c10::impl::VirtualGuardImpl guard(tensor.device().type());
  return cuda::Stream::Borrow(gpu, guard.getStream(tensor.device()).native_handle());
}

// `T`: float, or uint16_t for bf16.
template <class T>
void DequantizeOnCpu(QuantizeBase kind, const quantized::MatrixShape& shape,
                     const std::byte* stored, T* out) {
  if (kind == QuantizeBase::kInt8) {
    at::parallel_for(0, static_cast<int64_t>(shape.rows), /*grain_size=*/64,
                     [&](int64_t begin, int64_t end) {
                       quantized::Int8Dequantize(stored, shape, static_cast<uint64_t>(begin),
                                                 static_cast<uint64_t>(end), out);
                     });
    return;
  }
  const uint64_t elements = shape.rows * shape.columns;
  const auto blocks = static_cast<int64_t>(quantized::Nf4Layout(elements).blocks);
  at::parallel_for(0, blocks, /*grain_size=*/1024, [&](int64_t begin, int64_t end) {
    quantized::Nf4Dequantize(stored, elements, static_cast<uint64_t>(begin),
                             static_cast<uint64_t>(end), out);
  });
}

}  // namespace

DequantizedMemory::DequantizedMemory(const at::Device& device, at::ScalarType type, int64_t largest)
    : device_(device), memory_(at::empty({largest}, at::TensorOptions(type).device(device))) {
  if (device.is_cpu()) return;
  auto gpu = cuda::Device::Open(static_cast<uint32_t>(device.index()));
  ThrowIfError(gpu.status());
  gpu_ = *std::move(gpu);
}

at::Tensor DequantizedMemory::Matrix(int64_t rows, int64_t columns) const {
  return memory_.narrow(0, 0, rows * columns).view({rows, columns});
}

QuantizedMatrix::QuantizedMatrix(QuantizeBase kind, int64_t rows, int64_t columns,
                                 const DequantizedMemory* memory)
    : kind_(kind),
      rows_(rows),
      columns_(columns),
      memory_(memory),
      stored_(at::zeros({static_cast<int64_t>(BytesToStore(kind, rows, columns))},
                        at::TensorOptions(at::kByte).device(memory->device()))) {
  LH_CHECK(kind != QuantizeBase::kNone, "a quantized matrix has a kind");
}

Status QuantizedMatrix::Set(const at::Tensor& values) {
  const auto elements = static_cast<uint64_t>(values.numel());
  LH_CHECK(values.numel() == rows_ * columns_ && values.is_contiguous() && values.is_cpu(),
           "{} values for a matrix of {} x {}", elements, rows_, columns_);
  const at::Tensor made = at::zeros(stored_.sizes(), at::kByte);  // on the CPU
  const std::span<const float> numbers(values.const_data_ptr<float>(), elements);
  std::byte* const stored = StoredIn(made);
  if (kind_ == QuantizeBase::kInt8) {
    const quantized::MatrixShape shape = MatrixShapeOf(rows_, columns_);
    const bool finite = OnThreads(shape.rows, elements, [&](uint64_t begin, uint64_t end) {
      return quantized::Int8Quantize(numbers, shape, begin, end, stored);
    });
    if (!finite) {
      return InvalidArgument("a number is beyond 65504, the largest of fp16, or not finite");
    }
  } else {
    const uint64_t blocks = quantized::Nf4Layout(elements).blocks;
    std::vector<float> absmax(blocks);
    const bool finite = OnThreads(blocks, elements, [&](uint64_t begin, uint64_t end) {
      return quantized::Nf4QuantizeBlocks(numbers, begin, end, absmax, stored);
    });
    if (!finite) return InvalidArgument("a number is not finite");
    quantized::Nf4StoreAbsmax(absmax, quantized::Nf4MeanOfAbsmax(absmax), elements, stored);
  }
  stored_.copy_(made);
  return absl::OkStatus();
}

at::Tensor QuantizedMatrix::Dequantize() const {
  at::Tensor matrix = memory_->Matrix(rows_, columns_);
  const quantized::MatrixShape shape = MatrixShapeOf(rows_, columns_);
  const bool bf16 = type() == at::kBFloat16;
  if (memory_->gpu()) {
    const cuda::Stream stream = CurrentStreamOf(*memory_->gpu(), matrix);
    const void* const stored = stored_.const_data_ptr();
    void* const out = matrix.mutable_data_ptr();
    ThrowIfError(
        kind_ == QuantizeBase::kInt8
            ? codec::cuda::Int8Dequantize(stored, shape, bf16, out, stream)
            : codec::cuda::Nf4Dequantize(stored, shape.rows * shape.columns, bf16, out, stream));
  } else if (bf16) {
    DequantizeOnCpu(kind_, shape, StoredIn(stored_),
                    reinterpret_cast<uint16_t*>(matrix.mutable_data_ptr<at::BFloat16>()));
  } else {
    DequantizeOnCpu(kind_, shape, StoredIn(stored_), matrix.mutable_data_ptr<float>());
  }
  return matrix;
}

}  // namespace longhaul::worker
