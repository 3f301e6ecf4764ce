#include "worker/stage/device/host_copies.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "worker/stage/device/torch_scope.h"

namespace longhaul::worker {
namespace {

// One core copies, into memory that it touches first, at a part of what PCIe carries.
constexpr size_t kThreads = 4;
constexpr size_t kBufferBytes = HostCopies::kPinnedBytes / (2 * kThreads);
// A buffer takes milliseconds; a device that has not filled it by then will not.
constexpr absl::Duration kPatience = absl::Seconds(60);

// What one thread copies with.
class Lane {
 public:
  static StatusOr<Lane> Create(const cuda::Device& device) {
    LH_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(device));
    LH_ASSIGN_OR_RETURN(Buffer one, NewBuffer(device));
    LH_ASSIGN_OR_RETURN(Buffer other, NewBuffer(device));
    return Lane(std::move(stream), std::array<Buffer, 2>{std::move(one), std::move(other)});
  }

  Status Run(const HostCopies::Copy& copy) {
    const size_t most = kBufferBytes / WidthOf(copy);
    const size_t pieces = (copy.elements + most - 1) / most;
    const auto elements_of = [&](size_t piece) {
      return std::min(most, copy.elements - piece * most);
    };
    copy.values->clear();
    copy.values->reserve(copy.elements);
    if (pieces > 0) LH_RETURN_IF_ERROR(Queue(copy, 0, elements_of(0), &buffers_[0]));
    for (size_t piece = 0; piece < pieces; ++piece) {
      const size_t next = piece + 1;
      if (next < pieces) {
        LH_RETURN_IF_ERROR(Queue(copy, next * most, elements_of(next), &buffers_[next % 2]));
      }
      const Buffer& filled = buffers_[piece % 2];
      LH_RETURN_IF_ERROR(filled.done.Await(Deadline::After(kPatience)));
      Take(copy, filled.memory.span().data(), elements_of(piece));
    }
    return absl::OkStatus();
  }

 private:
  struct Buffer {
    cuda::PinnedBuffer memory;
    cuda::Event done;
  };

  Lane(cuda::Stream stream, std::array<Buffer, 2> buffers)
      : stream_(std::move(stream)), buffers_(std::move(buffers)) {}

  static StatusOr<Buffer> NewBuffer(const cuda::Device& device) {
    LH_ASSIGN_OR_RETURN(cuda::PinnedBuffer memory,
                        cuda::PinnedBuffer::Create(device, kBufferBytes));
    LH_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(device));
    return Buffer{std::move(memory), std::move(done)};
  }

  static size_t WidthOf(const HostCopies::Copy& copy) {
    return copy.bf16 ? sizeof(uint16_t) : sizeof(float);
  }

  Status Queue(const HostCopies::Copy& copy, size_t begin, size_t elements, Buffer* buffer) {
    const auto* const from = static_cast<const std::byte*>(copy.data_dev) + begin * WidthOf(copy);
    LH_RETURN_IF_ERROR(stream_.Copy(buffer->memory.span().data(), from, elements * WidthOf(copy)));
    return buffer->done.Record(stream_);
  }

  // Appends them. Room was reserved without being touched, so that each page is written once.
  static void Take(const HostCopies::Copy& copy, const std::byte* from, size_t elements) {
    std::vector<float>& values = *copy.values;
    if (!copy.bf16) {
      const auto* const floats = reinterpret_cast<const float*>(from);
      values.insert(values.end(), floats, floats + elements);
      return;
    }
    const auto* const halves = reinterpret_cast<const uint16_t*>(from);
    std::array<float, 4096> widened;
    for (size_t begin = 0; begin < elements; begin += widened.size()) {
      const size_t count = std::min(widened.size(), elements - begin);
      for (size_t i = 0; i < count; ++i) {
        widened[i] = std::bit_cast<float>(static_cast<uint32_t>(halves[begin + i]) << 16);
      }
      values.insert(values.end(), widened.begin(), widened.begin() + count);
    }
  }

  cuda::Stream stream_;
  std::array<Buffer, 2> buffers_;
};

class CudaHostCopies final : public HostCopies {
 public:
  explicit CudaHostCopies(std::vector<Lane> lanes) : lanes_(std::move(lanes)) {}

  Status Run(std::span<const Copy> copies) override {
    // The largest first, so that no thread begins one when the others have ended.
    std::vector<const Copy*> order;
    for (const Copy& copy : copies) order.push_back(&copy);
    std::ranges::stable_sort(order, std::greater(), &Copy::elements);
    std::atomic<size_t> next{0};
    std::vector<Status> statuses(lanes_.size());
    const auto work = [&](size_t lane) {
      try {
        while (statuses[lane].ok()) {
          const size_t mine = next.fetch_add(1);
          if (mine >= order.size()) return;
          statuses[lane] = lanes_[lane].Run(*order[mine]);
        }
      } catch (const std::exception& error) {
        statuses[lane] = FromTorchException("copying to the host's memory", error);
      }
    };
    {
      std::vector<std::jthread> threads;
      for (size_t lane = 0; lane < lanes_.size(); ++lane) threads.emplace_back(work, lane);
    }
    for (const Status& status : statuses) LH_RETURN_IF_ERROR(status);
    return absl::OkStatus();
  }

 private:
  std::vector<Lane> lanes_;
};

}  // namespace

StatusOr<std::unique_ptr<HostCopies>> HostCopies::Create(const cuda::Device& device) {
  std::vector<Lane> lanes;
  for (size_t lane = 0; lane < kThreads; ++lane) {
    LH_ASSIGN_OR_RETURN(Lane made, Lane::Create(device));
    lanes.push_back(std::move(made));
  }
  return std::make_unique<CudaHostCopies>(std::move(lanes));
}

}  // namespace longhaul::worker
