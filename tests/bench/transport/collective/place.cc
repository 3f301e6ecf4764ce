#include "tests/bench/transport/collective/place.h"

#include <algorithm>
#include <cstring>

#include "base/aligned_buffer.h"
#include "base/cuda/memory.h"

namespace longhaul::collective::bench {
namespace {

constexpr size_t kPieceBytes = size_t{16} << 20;
constexpr absl::Duration kCopyLimit = absl::Minutes(1);

class HostPlace final : public Place {
 public:
  const cuda::Device* device() const override { return nullptr; }
  const cuda::Stream* stream() const override { return nullptr; }
  StatusOr<std::byte*> Allocate(size_t bytes) override {
    return buffers_.emplace_back(bytes).span().data();
  }
  Status Copy(void* to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
    return absl::OkStatus();
  }
  Status Write(void* to, size_t bytes, const Fill& fill) override {
    if (bytes > 0) fill(0, {static_cast<std::byte*>(to), bytes});
    return absl::OkStatus();
  }
  Status Read(const void* from, size_t bytes, const Look& look) override {
    for (size_t at = 0; at < bytes; at += kPieceBytes) {
      look(at, {static_cast<const std::byte*>(from) + at, std::min(kPieceBytes, bytes - at)});
    }
    return absl::OkStatus();
  }

 private:
  std::vector<AlignedBuffer> buffers_;
};

class GpuPlace final : public Place {
 public:
  GpuPlace(const cuda::Device& device, cuda::Stream stream, cuda::Event done,
           cuda::PinnedBuffer piece)
      : device_(device),
        stream_(std::move(stream)),
        done_(std::move(done)),
        piece_(std::move(piece)) {}

  const cuda::Device* device() const override { return &device_; }
  const cuda::Stream* stream() const override { return &stream_; }
  StatusOr<std::byte*> Allocate(size_t bytes) override {
    LH_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer, cuda::DeviceBuffer::Create(device_, bytes));
    buffers_.push_back(std::move(buffer));
    return static_cast<std::byte*>(buffers_.back().data_dev());
  }
  Status Copy(void* to, const void* from, size_t bytes) override {
    return bytes == 0 ? absl::OkStatus() : stream_.Copy(to, from, bytes);
  }
  Status Write(void* to, size_t bytes, const Fill& fill) override {
    for (size_t at = 0; at < bytes; at += kPieceBytes) {
      const size_t count = std::min(kPieceBytes, bytes - at);
      fill(at, piece_.span().first(count));
      LH_RETURN_IF_ERROR(Now(static_cast<std::byte*>(to) + at, piece_.span().data(), count));
    }
    return absl::OkStatus();
  }
  Status Read(const void* from, size_t bytes, const Look& look) override {
    for (size_t at = 0; at < bytes; at += kPieceBytes) {
      const size_t count = std::min(kPieceBytes, bytes - at);
      LH_RETURN_IF_ERROR(
          Now(piece_.span().data(), static_cast<const std::byte*>(from) + at, count));
      look(at, piece_.span().first(count));
    }
    return absl::OkStatus();
  }

 private:
  Status Now(void* to, const void* from, size_t bytes) {
    LH_RETURN_IF_ERROR(stream_.Copy(to, from, bytes));
    LH_RETURN_IF_ERROR(done_.Record(stream_));
    return done_.Await(Deadline::After(kCopyLimit));
  }

  const cuda::Device device_;
  cuda::Stream stream_;
  cuda::Event done_;
  cuda::PinnedBuffer piece_;
  std::vector<cuda::DeviceBuffer> buffers_;
};

}  // namespace

std::unique_ptr<Place> Place::Host() {
  return std::make_unique<HostPlace>();
}

StatusOr<std::unique_ptr<Place>> Place::Gpu(const cuda::Device& device) {
  LH_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(device));
  LH_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(device));
  LH_ASSIGN_OR_RETURN(cuda::PinnedBuffer piece, cuda::PinnedBuffer::Create(device, kPieceBytes));
  return std::make_unique<GpuPlace>(device, std::move(stream), std::move(done), std::move(piece));
}

}  // namespace longhaul::collective::bench
