#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/kernel_table.h"

namespace longhaul::collective {
namespace {

static_assert(kMostParts == kMaxParts);
constexpr size_t kMostWords = 2 * kMaxParts;
// The words of a read come after microseconds as a rule: no pause before so long.
constexpr absl::Duration kBusyWait = absl::Milliseconds(20);
constexpr std::chrono::microseconds kPause(20);
// What no word of a read is; one that is looks as if it had not come, until the read's event.
constexpr uint64_t kNotThere = ~uint64_t{0};
// An event takes microseconds more than the words before it.
constexpr int kLooksAtWords = 64;
// Bytes for the launches that load kernels.
constexpr size_t kLoadBytes = 256;
constexpr absl::Duration kLoadLimit = absl::Minutes(1);

uint32_t NumberOf(Dtype dtype) {
  if (dtype == Dtype::kF32) return 1;
  return dtype == Dtype::kF16 ? 2 : 3;
}

class CudaEngine final : public Engine {
 public:
  CudaEngine(const cuda::Device& device, cuda::PinnedBuffer words,
             std::array<std::optional<cuda::Event>, kReads> events)
      : device_(device), words_(std::move(words)), events_(std::move(events)) {}

  const cuda::Device* device() const override { return &device_; }
  StatusOr<OwnedMemory> Allocate(size_t bytes) override {
    LH_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer,
                        cuda::DeviceBuffer::Create(device_, std::max<size_t>(bytes, 1)));
    const auto owner = std::make_shared<cuda::DeviceBuffer>(std::move(buffer));
    return OwnedMemory(static_cast<std::byte*>(owner->data_dev()), bytes, owner);
  }
  Status Copy(void* to, const void* from, size_t bytes, Queue queue) override {
    if (bytes == 0 || to == from) return absl::OkStatus();
    return device_.Check(device_.table().copy(to, from, bytes, queue.stream), "queueing a copy");
  }
  Status Zero(void* to, size_t bytes, Queue queue) override {
    return device_.Check(kernels().zero(device_.index(), to, bytes, queue.stream),
                         "queueing zeros");
  }
  Status Sum(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
             Queue queue) override {
    return Join(parts, count, dtype, out, /*largest=*/false, queue);
  }
  Status Largest(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
                 Queue queue) override {
    return Join(parts, count, dtype, out, /*largest=*/true, queue);
  }
  StatusOr<uint64_t> Read(std::span<const void* const> from, Queue queue) override {
    if (from.size() > kMostWords) {
      return InvalidArgument("cannot read {} words at once", from.size());
    }
    const uint64_t read = next_++;
    counts_[read % kReads] = from.size();
    ReadArgs args{};
    std::copy(from.begin(), from.end(), args.from_dev);
    args.to = WordsOf(read);
    args.count = static_cast<uint32_t>(from.size());
    std::fill_n(WordsOf(read), from.size(), kNotThere);
    LH_RETURN_IF_ERROR(device_.Check(kernels().read(device_.index(), &args, queue.stream),
                                     "queueing a read of sizes"));
    LH_RETURN_IF_ERROR(
        device_.Check(device_.table().event_record(events_[read % kReads]->handle(), queue.stream),
                      "recording an event"));
    return read;
  }
  StatusOr<std::span<const uint64_t>> Await(uint64_t read, const std::function<Status()>& ended,
                                            Deadline deadline) override {
    const MonoTime began = Now();
    while (true) {
      const std::span<uint64_t> words(WordsOf(read), counts_[read % kReads]);
      for (int look = 0; look < kLooksAtWords; ++look) {
        if (AreThere(words)) return words;
      }
      bool done = false;
      LH_RETURN_IF_ERROR(
          device_.Check(device_.table().event_query(events_[read % kReads]->handle(), &done),
                        "waiting for the sizes of a compressed collective"));
      if (done) return words;
      LH_RETURN_IF_ERROR(ended());
      if (deadline.Expired()) {
        return absl::DeadlineExceededError("the sizes of a compressed collective did not come");
      }
      if (Now() - began > kBusyWait) std::this_thread::sleep_for(kPause);
    }
  }

 private:
  Status Join(std::span<const void* const> parts, uint64_t count, Dtype dtype, void* out,
              bool largest, Queue queue) {
    if (parts.empty() || parts.size() > kMaxParts || dtype == Dtype::kBytes) {
      return InvalidArgument("cannot sum {} parts of {}", parts.size(), ToString(dtype));
    }
    if (count == 0) return absl::OkStatus();
    SumArgs args{};
    std::copy(parts.begin(), parts.end(), args.parts_dev);
    args.out_dev = out;
    args.count = count;
    args.parts = static_cast<uint32_t>(parts.size());
    args.dtype = NumberOf(dtype);
    args.largest = largest ? 1 : 0;
    return device_.Check(kernels().sum(device_.index(), &args, queue.stream), "queueing a sum");
  }
  const KernelTable& kernels() const { return *device_.table().collective_kernels; }
  static bool AreThere(std::span<uint64_t> words) {
    return std::ranges::all_of(words, [](uint64_t& word) {
      return std::atomic_ref(word).load(std::memory_order_acquire) != kNotThere;
    });
  }
  uint64_t* WordsOf(uint64_t read) {
    return reinterpret_cast<uint64_t*>(words_.span().data()) + read % kReads * kMostWords;
  }

  const cuda::Device device_;
  cuda::PinnedBuffer words_;
  std::array<std::optional<cuda::Event>, kReads> events_;
  std::array<size_t, kReads> counts_{};
  uint64_t next_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<Engine>> Engine::ForDevice(const cuda::Device& device) {
  LH_ASSIGN_OR_RETURN(cuda::PinnedBuffer words,
                      cuda::PinnedBuffer::Create(device, kReads * kMostWords * sizeof(uint64_t)));
  std::array<std::optional<cuda::Event>, kReads> events;
  for (std::optional<cuda::Event>& event : events) {
    LH_ASSIGN_OR_RETURN(cuda::Event made, cuda::Event::Create(device));
    event = std::move(made);
  }
  auto engine = std::make_unique<CudaEngine>(device, std::move(words), std::move(events));
  LH_ASSIGN_OR_RETURN(const OwnedMemory memory, engine->Allocate(kLoadBytes));
  const Status loaded = LaunchOnce(device, [&](Queue queue) -> Status {
    LH_RETURN_IF_ERROR(engine->Zero(memory.data(), kLoadBytes, queue));
    const void* const part = memory.data();
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
      LH_RETURN_IF_ERROR(
          engine->Sum(std::array{part, part}, kLoadBytes / 4, dtype, memory.data(), queue));
    }
    return engine->Read(std::array{part}, queue).status();
  });
  LH_RETURN_IF_ERROR(loaded);
  return engine;
}

Status LaunchOnce(const cuda::Device& device, const std::function<Status(Queue queue)>& work) {
  LH_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(device));
  LH_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(device));
  LH_RETURN_IF_ERROR(work({stream.handle()}));
  LH_RETURN_IF_ERROR(done.Record(stream));
  return done.Await(Deadline::After(kLoadLimit));
}

}  // namespace longhaul::collective
