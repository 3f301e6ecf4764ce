#include "tests/support/fake_gpu.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/kernel_table.h"

namespace longhaul::testing {
namespace {

using collective::ExchangeArgs;
using collective::ExchangePeer;

class FakeStream {
 public:
  FakeStream() : thread_([this] { Run(); }) {
    const std::lock_guard lock(all_mutex);
    all.insert(this);
  }
  ~FakeStream() {
    {
      const std::lock_guard lock(all_mutex);
      all.erase(this);
    }
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Queue(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(work));
      ++begun_;
    }
    changed_.notify_all();
  }
  uint64_t begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  bool IsDone(uint64_t number) {
    const std::lock_guard lock(mutex_);
    return done_ >= number;
  }
  // As whoever frees device memory does.
  static void AwaitAll() {
    const std::lock_guard lock(all_mutex);
    for (FakeStream* const stream : all) {
      std::unique_lock idle(stream->mutex_);
      stream->changed_.wait(idle, [&] { return stream->done_ == stream->begun_; });
    }
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> work = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      work();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }

  static std::mutex all_mutex;
  static std::set<FakeStream*> all;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t begun_ = 0, done_ = 0;
  bool closing_ = false;
  std::thread thread_;
};
std::mutex FakeStream::all_mutex;
std::set<FakeStream*> FakeStream::all;

struct FakeEvent {
  FakeStream* stream = nullptr;
  uint64_t number = 0;
};

FakeStream* StreamOf(void* stream) {
  return static_cast<FakeStream*>(stream);
}

// One direction of one lane, which goes on as far as it can whenever it is asked.
class Lane {
 public:
  Lane(const ExchangeArgs& args, const ExchangePeer& peer, uint32_t lane, bool sends)
      : args_(args), peer_(peer), lane_(lane), sends_(sends) {
    step_ = Steps()[sends ? 0 : 1];
    const uint64_t chunk = sends ? peer.send_chunk : peer.receive_chunk;
    stride_ = chunk * (sends ? peer.send_lanes : peer.receive_lanes);
    begin_ = chunk * lane;
    bytes_ = peer.send_most;
    if (sends && peer.size_dev != nullptr) {
      bytes_ = std::min(bytes_, peer.size_base + *peer.size_dev);
    }
  }
  // True: it has ended.
  bool GoOn() {
    while (!last_ && (sends_ ? Fill() : Empty())) {
    }
    if (!last_) return false;
    Steps()[sends_ ? 0 : 1] = step_;
    if (sends_ && peer_.size_dev != nullptr) {
      uint64_t& all = Steps()[2 + args_.kind];
      all += sent_;
      Set(peer_.sent + Line(lane_), all);
    }
    return true;
  }

 private:
  uint64_t* Steps() const { return peer_.steps_dev + uint64_t{lane_} * collective::kStepWords; }
  uint64_t Line(uint64_t number) const { return number * args_.line_words; }
  uint64_t Slot() const { return uint64_t{lane_} * args_.slots + step_ % args_.slots; }
  static uint64_t Get(const uint64_t* word) {
    return std::atomic_ref(*const_cast<uint64_t*>(word)).load(std::memory_order_acquire);
  }
  static void Set(uint64_t* word, uint64_t value) {
    std::atomic_ref(*word).store(value, std::memory_order_release);
  }
  bool Fill() {
    if (step_ >= args_.slots && Get(peer_.send_emptied + Line(lane_)) + args_.slots <= step_) {
      return false;
    }
    const uint64_t count = begin_ < bytes_ ? std::min(peer_.send_chunk, bytes_ - begin_) : 0;
    last_ = begin_ + stride_ >= bytes_;
    if (count > 0) {
      std::memcpy(peer_.send_slots + Slot() * args_.slot_bytes,
                  static_cast<const std::byte*>(peer_.send_dev) + begin_, count);
    }
    Set(peer_.send_filled + Line(Slot()), (step_ + 1) << 32 | uint64_t{last_} << 31 | count);
    sent_ += count;
    return Advance();
  }
  bool Empty() {
    const uint64_t word = Get(peer_.receive_filled + Line(Slot()));
    if (word >> 32 != ((step_ + 1) & 0xffffffff)) return false;
    last_ = (word >> 31 & 1) != 0;
    const uint64_t count = word & 0x7fffffff;
    const uint64_t most = peer_.receive_most;
    const uint64_t room = begin_ < most ? std::min(peer_.receive_chunk, most - begin_) : 0;
    const bool ends = begin_ + stride_ >= most;
    if (count > room || (!last_ && ends) ||
        (peer_.receive_any == 0 && (count != room || last_ != ends))) {
      Set(args_.fault, 1 + peer_.peer);
    } else if (count > 0) {
      std::memcpy(static_cast<std::byte*>(peer_.receive_dev) + begin_,
                  peer_.receive_slots + Slot() * args_.slot_bytes, count);
    }
    Set(peer_.receive_emptied + Line(lane_), step_ + 1);
    return Advance();
  }
  bool Advance() {
    ++step_;
    begin_ += stride_;
    return true;
  }

  const ExchangeArgs& args_;
  const ExchangePeer& peer_;
  const uint32_t lane_;
  const bool sends_;
  uint64_t step_ = 0, stride_ = 0, begin_ = 0, bytes_ = 0, sent_ = 0;
  bool last_ = false;
};

void Exchange(const ExchangeArgs& args) {
  std::vector<Lane> lanes;
  for (uint32_t p = 0; p < args.peer_count; ++p) {
    const ExchangePeer& peer = args.peers[p];
    for (uint32_t k = 0; k < peer.send_lanes; ++k) lanes.emplace_back(args, peer, k, true);
    for (uint32_t k = 0; k < peer.receive_lanes; ++k) lanes.emplace_back(args, peer, k, false);
  }
  std::vector<Lane*> open;
  for (Lane& lane : lanes) open.push_back(&lane);
  while (!open.empty()) {
    std::erase_if(open, [](Lane* lane) { return lane->GoOn(); });
    const std::atomic_ref ended(*const_cast<uint64_t*>(args.ended));
    if (ended.load() != 0) return;
    std::this_thread::yield();
  }
}

void Sum(const collective::SumArgs& args) {
  using collective::Dtype;
  const auto engine = collective::Engine::ForHost();
  const std::span<const void* const> parts(args.parts_dev, args.parts);
  const Dtype dtype = args.dtype == 1 ? Dtype::kF32 : args.dtype == 2 ? Dtype::kF16 : Dtype::kBf16;
  const Status done = args.largest != 0
                          ? engine->Largest(parts, args.count, dtype, args.out_dev, {})
                          : engine->Sum(parts, args.count, dtype, args.out_dev, {});
  if (!done.ok()) std::abort();
}

constexpr collective::KernelTable kKernels = {
    .sum =
        [](int, const collective::SumArgs* args, void* stream) {
          StreamOf(stream)->Queue([args = *args] { Sum(args); });
          return 0;
        },
    .read =
        [](int, const collective::ReadArgs* args, void* stream) {
          StreamOf(stream)->Queue([args = *args] {
            for (uint32_t k = 0; k < args.count; ++k) {
              std::memcpy(args.to + k, args.from_dev[k], sizeof(uint64_t));
            }
          });
          return 0;
        },
    .zero =
        [](int, void* to, uint64_t bytes, void* stream) {
          StreamOf(stream)->Queue([=] { std::memset(to, 0, bytes); });
          return 0;
        },
    .exchange =
        [](int, const ExchangeArgs* args, void* stream) {
          StreamOf(stream)->Queue(
              [args = std::make_shared<ExchangeArgs>(*args)] { Exchange(*args); });
          return 0;
        },
};

int Allocate(int, size_t bytes, void** memory) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory == nullptr ? 2 : 0;
}
int Free(void* memory) {
  FakeStream::AwaitAll();
  std::free(memory);
  return 0;
}

constexpr cuda::DeviceTable kTable = {
    .version = cuda::kTableVersion,
    .runtime_version = 13000,
    .error_text = [](int) { return "out of memory"; },
    .driver_version = [](int* version) { return *version = 13000, 0; },
    .device_count = [](int* count) { return *count = 64, 0; },
    .describe =
        [](int, cuda::DeviceInfo* info) {
          *info = {"Test GPU", 9, 0, 132, 80'000'000'000};
          return 0;
        },
    .make_current = [](int) { return 0; },
    .reaches = [](int, int, bool* reaches) { return *reaches = false, 0; },
    .stream_create = [](int, void** stream) { return *stream = new FakeStream, 0; },
    .stream_destroy =
        [](void* stream) {
          delete StreamOf(stream);
          return 0;
        },
    .event_create = [](int, bool, void** event) { return *event = new FakeEvent, 0; },
    .event_destroy =
        [](void* event) {
          delete static_cast<FakeEvent*>(event);
          return 0;
        },
    .event_record =
        [](void* event, void* stream) {
          *static_cast<FakeEvent*>(event) = {StreamOf(stream), StreamOf(stream)->begun()};
          return 0;
        },
    .event_query =
        [](void* event, bool* done) {
          const auto* const asked = static_cast<FakeEvent*>(event);
          return *done = asked->stream->IsDone(asked->number), 0;
        },
    .allocate = Allocate,
    .free = Free,
    .allocate_pinned = Allocate,
    .free_pinned = Free,
    .map = [](int, void* memory, size_t, void** memory_dev) { return *memory_dev = memory, 0; },
    .unmap = [](void*) { return 0; },
    .copy =
        [](void* to, const void* from, size_t bytes, void* stream) {
          StreamOf(stream)->Queue([=] { std::memmove(to, from, bytes); });
          return 0;
        },
    .collective_kernels = &kKernels,
};

}  // namespace

const cuda::DeviceTable* FakeGpuTable() {
  return &kTable;
}

}  // namespace longhaul::testing
