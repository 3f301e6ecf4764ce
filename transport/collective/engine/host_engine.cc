#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <vector>

#include "base/half.h"
#include "transport/collective/engine/engine.h"

namespace longhaul::collective {
namespace {

constexpr std::align_val_t kAlignment{256};
// Elements that are summed at a time, so that the sums stay in the cache.
constexpr uint64_t kBlock = 2048;

float Widened(const void* data, uint64_t index, Dtype dtype) {
  if (dtype == Dtype::kF32) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return dtype == Dtype::kBf16 ? Bf16ToF32(bits) : F16ToF32(bits);
}

class HostEngine final : public Engine {
 public:
  const cuda::Device* device() const override { return nullptr; }
  StatusOr<OwnedMemory> Allocate(size_t bytes) override {
    auto* const data = static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
    if (data == nullptr) {
      return absl::ResourceExhaustedError("there is no memory for a compressed collective");
    }
    return OwnedMemory(data, bytes, std::shared_ptr<void>(data, [](void* memory) {
                         ::operator delete(memory, kAlignment);
                       }));
  }
  Status Copy(void* to, const void* from, size_t bytes, Queue /*queue*/) override {
    std::memmove(to, from, bytes);
    return absl::OkStatus();
  }
  Status Zero(void* to, size_t bytes, Queue /*queue*/) override {
    std::memset(to, 0, bytes);
    return absl::OkStatus();
  }
  Status Sum(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
             Queue /*queue*/) override {
    return Join(parts, count, dtype, out, [](float sum, float value) { return sum + value; });
  }
  Status Largest(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
                 Queue /*queue*/) override {
    return Join(parts, count, dtype, out, [](float largest, float value) {
      return value > largest || value != value ? value : largest;
    });
  }
  StatusOr<uint64_t> Read(std::span<const void* const> from, Queue /*queue*/) override {
    std::vector<uint64_t>& words = reads_[next_ % kReads];
    words.resize(from.size());
    for (size_t k = 0; k < from.size(); ++k) std::memcpy(&words[k], from[k], sizeof(uint64_t));
    return next_++;
  }
  StatusOr<std::span<const uint64_t>> Await(uint64_t read, const std::function<Status()>& /*ended*/,
                                            Deadline /*deadline*/) override {
    return std::span<const uint64_t>(reads_[read % kReads]);
  }

 private:
  template <class JoinTwo>
  static Status Join(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
                     const JoinTwo& join) {
    if (parts.empty() || parts.size() > kMaxParts || dtype == Dtype::kBytes) {
      return InvalidArgument("cannot sum {} parts of {}", parts.size(), ToString(dtype));
    }
    std::array<float, kBlock> sums;
    for (uint64_t first = 0; first < count; first += kBlock) {
      const uint64_t size = std::min(kBlock, count - first);
      for (size_t part = 0; part < parts.size(); ++part) {
        for (uint64_t k = 0; k < size; ++k) {
          const float value = Widened(parts[part], first + k, dtype);
          sums[k] = part == 0 ? value : join(sums[k], value);
        }
      }
      for (uint64_t k = 0; k < size; ++k) {
        if (dtype == Dtype::kF32) {
          static_cast<float*>(out)[first + k] = sums[k];
        } else {
          static_cast<uint16_t*>(out)[first + k] =
              dtype == Dtype::kBf16 ? F32ToBf16(sums[k]) : F32ToF16(sums[k]);
        }
      }
    }
    return absl::OkStatus();
  }
  std::array<std::vector<uint64_t>, kReads> reads_;
  uint64_t next_ = 0;
};

}  // namespace

std::unique_ptr<Engine> Engine::ForHost() {
  return std::make_unique<HostEngine>();
}

}  // namespace longhaul::collective
