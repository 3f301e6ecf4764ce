#include <fmt/core.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "transport/collective/core/call.h"
#include "transport/collective/engine/queue_wait.h"
#include "transport/collective/nccl/api.h"
#include "transport/collective/nccl/factory.h"

namespace longhaul::collective::nccl {
namespace {

int TypeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBytes:
      return kUint8;
    case Dtype::kF32:
      return kFloat32;
    case Dtype::kF16:
      return kFloat16;
    case Dtype::kBf16:
      return kBfloat16;
  }
  return kUint8;
}

int OpOf(Reduction reduction) {
  return reduction == Reduction::kSum ? kSum : kMax;
}

const void* At(const void* data, uint64_t element, Dtype dtype) {
  return static_cast<const std::byte*>(data) + element * BytesPerElement(dtype);
}
void* At(void* data, uint64_t element, Dtype dtype) {
  return static_cast<std::byte*>(data) + element * BytesPerElement(dtype);
}

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(const Api* api, int version, const cuda::Device& device,
                   std::shared_ptr<Member> member, cuda::Event event)
      : api_(api),
        version_(version),
        device_(device),
        member_(std::move(member)),
        event_(std::move(event)) {}

  ~NcclCommunicator() override {
    member_->OnEnd(nullptr);
    const std::lock_guard lock(mutex_);
    if (comm_ != nullptr) static_cast<void>(api_->CommDestroy(comm_));
  }

  // Blocks as long as NCCL does, without the lock: other ranks' threads connect meanwhile.
  Status Connect(const UniqueId& id) {
    LH_RETURN_IF_ERROR(MakeCurrent());
    Comm comm = nullptr;
    LH_RETURN_IF_ERROR(nccl::Check(
        *api_, api_->CommInitRank(&comm, static_cast<int>(size()), id, static_cast<int>(rank())),
        fmt::format("connecting {} GPUs by NCCL", size())));
    const std::lock_guard lock(mutex_);
    comm_ = comm;
    return absl::OkStatus();
  }
  // From now on a lost rank ends what is queued.
  void Watch() {
    member_->OnEnd([this](const Status& /*why*/) { AbortNow(); });
  }

  uint32_t rank() const override { return member_->place().rank; }
  uint32_t size() const override { return member_->place().size; }
  int device() const override { return device_.index(); }
  std::string Describe() const override { return "nccl " + VersionText(version_); }

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    LH_RETURN_IF_ERROR(Check({Op::kAllReduce, dtype, reduction, 0, count}, in, out));
    if (count == 0) return status();
    return Queued("an all-reduce", count * BytesPerElement(dtype), [&] {
      return api_->AllReduce(in, out, count, TypeOf(dtype), OpOf(reduction), comm_, queue.stream);
    });
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    LH_RETURN_IF_ERROR(Check({Op::kReduceScatter, dtype, reduction, 0, count}, in, out));
    if (count == 0) return status();
    return Queued("a reduce-scatter", (size() - 1) * count * BytesPerElement(dtype), [&] {
      return api_->ReduceScatter(in, out, count, TypeOf(dtype), OpOf(reduction), comm_,
                                 queue.stream);
    });
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    LH_RETURN_IF_ERROR(Check({.op = Op::kAllGather, .dtype = dtype, .count = count}, in, out));
    if (count == 0) return status();
    return Queued("an all-gather", (size() - 1) * count * BytesPerElement(dtype), [&] {
      return api_->AllGather(in, out, count, TypeOf(dtype), comm_, queue.stream);
    });
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    LH_RETURN_IF_ERROR(internal::CheckAllToAll(rank(), size(), in, send, out, receive, dtype));
    const Block& own = send[rank()];
    uint64_t sent = 0;
    for (const Block& block : send) sent += block.count;
    return Queued("an all-to-all", (sent - own.count) * BytesPerElement(dtype),
                  [&] { return SendAndReceive(in, send, out, receive, dtype, queue); });
  }
  Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) override {
    LH_RETURN_IF_ERROR(
        Check({.op = Op::kBroadcast, .dtype = dtype, .root = root, .count = count}, data, data));
    if (count == 0) return status();
    const uint64_t sent = rank() == root ? count * BytesPerElement(dtype) : 0;
    return Queued("a broadcast", sent, [&] {
      return api_->Broadcast(data, data, count, TypeOf(dtype), static_cast<int>(root), comm_,
                             queue.stream);
    });
  }
  Status Barrier(Queue queue) override {
    if (!barrier_word_.has_value()) LH_RETURN_IF_ERROR(PrepareBarrier());
    void* const word = barrier_word_->data_dev();
    return Queued("a barrier", 0, [&] {
      return api_->AllReduce(word, word, 1, kFloat32, kMax, comm_, queue.stream);
    });
  }

  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    LH_RETURN_IF_ERROR(internal::Check({.op = op, .dtype = dtype, .count = count}, size()));
    return op == Op::kBarrier && !barrier_word_.has_value() ? PrepareBarrier() : status();
  }

  Status Wait(Queue queue, Deadline deadline) override {
    return AwaitQueue({.device = device_,
                       .event = event_,
                       .communicator = *this,
                       .what = "a collective over NCCL",
                       .look = [this] { EndOnError(); }},
                      queue, deadline);
  }
  void Abort(const Status& reason) override { member_->End(reason); }
  Status status() const override { return member_->status(); }
  Stats stats() const override { return stats_; }

  // Makes the connections of all operations, as none may be made while a graph is recorded.
  Status Warm(const cuda::Stream& stream, Deadline deadline) {
    const Queue queue{stream.handle()};
    const uint64_t count = 8;
    LH_ASSIGN_OR_RETURN(cuda::DeviceBuffer buffer,
                        cuda::DeviceBuffer::Create(device_, 2 * size() * count * sizeof(float)));
    auto* const in = static_cast<float*>(buffer.data_dev());
    float* const out = in + size() * count;
    LH_RETURN_IF_ERROR(AllReduce(in, out, count, Dtype::kF32, Reduction::kSum, queue));
    LH_RETURN_IF_ERROR(ReduceScatter(in, out, count, Dtype::kF32, Reduction::kSum, queue));
    LH_RETURN_IF_ERROR(AllGather(in, out, count, Dtype::kF32, queue));
    LH_RETURN_IF_ERROR(AllToAll(in, out, count, Dtype::kF32, queue));
    LH_RETURN_IF_ERROR(Broadcast(in, count, Dtype::kF32, 0, queue));
    LH_RETURN_IF_ERROR(Barrier(queue));
    LH_RETURN_IF_ERROR(Wait(queue, deadline));
    stats_ = {};
    return absl::OkStatus();
  }

 private:
  Status Check(const internal::Call& call, const void* in, const void* out) const {
    return internal::CheckArguments(call, size(), in, out);
  }
  // NCCL uses the calling thread's current device.
  Status MakeCurrent() const {
    return device_.Check(device_.table().make_current(device_.index()), "choosing a device");
  }
  Status PrepareBarrier() {
    LH_ASSIGN_OR_RETURN(cuda::DeviceBuffer word, cuda::DeviceBuffer::Create(device_, 16));
    barrier_word_ = std::move(word);
    return absl::OkStatus();
  }

  int SendAndReceive(const void* in, std::span<const Block> send, void* out,
                     std::span<const Block> receive, Dtype dtype, Queue queue) {
    const int type = TypeOf(dtype);
    int result = api_->GroupStart();
    for (uint32_t peer = 0; peer < size() && result == kSuccess; ++peer) {
      if (send[peer].count > 0) {
        result = api_->Send(At(in, send[peer].offset, dtype), send[peer].count, type,
                            static_cast<int>(peer), comm_, queue.stream);
      }
      if (result == kSuccess && receive[peer].count > 0) {
        result = api_->Recv(At(out, receive[peer].offset, dtype), receive[peer].count, type,
                            static_cast<int>(peer), comm_, queue.stream);
      }
    }
    const int ended = api_->GroupEnd();
    return result == kSuccess ? ended : result;
  }

  template <class Call>
  Status Queued(std::string_view what, uint64_t sent_bytes, const Call& call) {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) {
      const Status why = status();
      return why.ok() ? absl::AbortedError("the communicator has ended") : why;
    }
    if (const int result = call(); result != kSuccess) {
      const Status failed = nccl::Check(*api_, result, fmt::format("queueing {}", what));
      // The calls of a lost rank's neighbours may fail before the rendezvous says who was lost.
      const Status why = member_->AwaitEnd(Deadline::After(absl::Seconds(1)));
      return why.ok() ? failed : why;
    }
    ++stats_.calls;
    stats_.tensor_bytes += sent_bytes;
    stats_.sent_bytes += sent_bytes;
    return absl::OkStatus();
  }

  // Ends the group if NCCL's own threads have seen a connection close.
  void EndOnError() {
    int error = kSuccess;
    {
      // Never waits here: a call that holds the lock may be blocked in NCCL.
      const std::unique_lock lock(mutex_, std::try_to_lock);
      if (!lock.owns_lock() || comm_ == nullptr) return;
      if (api_->CommGetAsyncError(comm_, &error) != kSuccess) return;
    }
    if (error == kSuccess || error == kInProgress) return;
    // Gives the rendezvous time to name the lost rank.
    if (!member_->AwaitEnd(Deadline::After(absl::Seconds(1))).ok()) return;
    Abort(nccl::Check(*api_, error, "NCCL"));
  }

  // Makes kernels that wait for a lost rank leave the device.
  void AbortNow() {
    const std::lock_guard lock(mutex_);
    if (comm_ == nullptr) return;
    static_cast<void>(MakeCurrent());
    static_cast<void>(api_->CommAbort(comm_));
    comm_ = nullptr;
  }

  const Api* const api_;
  const int version_;
  const cuda::Device device_;
  const std::shared_ptr<Member> member_;
  cuda::Event event_;
  std::optional<cuda::DeviceBuffer> barrier_word_;
  Stats stats_;
  std::mutex mutex_;     // comm_, against AbortNow
  Comm comm_ = nullptr;  // null: not connected, or aborted
};

}  // namespace

StatusOr<std::unique_ptr<Communicator>> Create(const std::shared_ptr<Member>& member,
                                               const cuda::Device& device, const Options& options,
                                               Deadline deadline) {
  LH_ASSIGN_OR_RETURN(const Api* const api, Load(options.libraries));
  int version = 0;
  LH_RETURN_IF_ERROR(Check(*api, api->GetVersion(&version), "asking for NCCL's version"));
  // Rank 0's id for NCCL, and a check of what must be the same and what must differ.
  UniqueId id{};
  std::string word(sizeof(id), '\0');
  if (member->place().rank == 0) {
    LH_RETURN_IF_ERROR(Check(*api, api->GetUniqueId(&id), "asking NCCL for an id"));
    std::memcpy(word.data(), &id, sizeof(id));
  }
  word += VersionText(version);
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> words, member->Tell(word, deadline));
  for (size_t rank = 0; rank < words.size(); ++rank) {
    if (words[rank].size() < sizeof(id)) {
      return InvalidArgument("rank {} has no NCCL communicator: all ranks must have one", rank);
    }
    const std::string other = words[rank].substr(sizeof(id));
    if (other != VersionText(version)) {
      return FailedPrecondition("rank {} has NCCL {}, rank {} has {}; install the same", rank,
                                other, member->place().rank, VersionText(version));
    }
  }
  std::memcpy(&id, words[0].data(), sizeof(id));

  LH_ASSIGN_OR_RETURN(cuda::Event event, cuda::Event::Create(device));
  LH_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::Stream::Create(device));
  struct Connecting {
    std::unique_ptr<NcclCommunicator> communicator;
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<Status> connected;
  };
  const auto connecting = std::make_shared<Connecting>();
  connecting->communicator =
      std::make_unique<NcclCommunicator>(api, version, device, member, std::move(event));
  // NCCL gives a call that connects no deadline, so it has a thread, which is left behind where a
  // rank does not come.
  std::thread([connecting, id] {
    const Status connected = connecting->communicator->Connect(id);
    const std::lock_guard lock(connecting->mutex);
    connecting->connected = connected;
    connecting->changed.notify_all();
  }).detach();
  {
    std::unique_lock lock(connecting->mutex);
    while (!connecting->connected.has_value()) {
      if (Status why = member->status(); !why.ok()) return why;
      if (deadline.Expired()) {
        const Status late = absl::DeadlineExceededError("NCCL did not connect all ranks in time");
        member->End(late);
        return late;
      }
      connecting->changed.wait_for(lock, std::chrono::milliseconds(20));
    }
    if (!connecting->connected->ok()) {
      const Status why = member->AwaitEnd(Deadline::After(absl::Seconds(1)));
      if (!why.ok()) return why;
      member->End(*connecting->connected);
      return *connecting->connected;
    }
  }
  std::unique_ptr<NcclCommunicator> communicator = std::move(connecting->communicator);
  communicator->Watch();
  LH_RETURN_IF_ERROR(communicator->Warm(stream, deadline));
  return communicator;
}

}  // namespace longhaul::collective::nccl
