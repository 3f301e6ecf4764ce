#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "transport/collective/core/call.h"
#include "transport/collective/engine/engine.h"
#include "transport/collective/engine/kernel_table.h"
#include "transport/collective/engine/queue_wait.h"
#include "transport/collective/mapped/factory.h"
#include "transport/collective/mapped/region.h"
#include "transport/collective/mapped/ring.h"

namespace longhaul::collective::mapped {
namespace {

static_assert(kMostRanks == kMostExchangePeers + 1);
static_assert(kKinds == kKindsOfCall && kKinds == std::size(kOps));
// A part of a sum begins at 16 bytes, whatever its dtype.
constexpr uint64_t kPartElements = 16;

// What goes to a rank and what comes from it.
struct Message {
  const std::byte* send = nullptr;
  uint64_t send_bytes = 0;  // at most, where `size` is not null
  const uint64_t* size = nullptr;
  uint64_t base = 0;
  std::byte* receive = nullptr;
  uint64_t receive_bytes = 0;
  bool receive_any = false;  // up to receive_bytes
};

class MappedCommunicator final : public Communicator, public Blobs {
 public:
  MappedCommunicator(const cuda::Device& device, std::shared_ptr<Member> member,
                     std::unique_ptr<Engine> engine, cuda::Event event, std::vector<Region> regions,
                     cuda::DeviceBuffer steps)
      : device_(device),
        member_(std::move(member)),
        engine_(std::move(engine)),
        event_(std::move(event)),
        regions_(std::move(regions)),
        steps_(std::move(steps)) {
    // From now on a lost rank ends what is queued.
    member_->OnEnd([this](const Status& /*why*/) { WordAt(kEndedAt).store(1); });
  }
  ~MappedCommunicator() override {
    // Waits for what is queued, which the end of the group ends.
    steps_.reset();
    member_->OnEnd(nullptr);
  }

  uint32_t rank() const override { return member_->place().rank; }
  uint32_t size() const override { return member_->place().size; }
  int device() const override { return device_.index(); }
  std::string Describe() const override { return "mapped host memory"; }

  Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                   Queue queue) override {
    LH_RETURN_IF_ERROR(
        internal::CheckArguments({Op::kAllReduce, dtype, reduction, 0, count}, size(), in, out));
    if (count == 0) return status();
    ++stats_.calls;
    // Two ranks send no more if each makes the whole sum, and wait for each other once.
    if (size() == 2) return ReduceWhole(in, out, count, dtype, reduction, queue);
    const uint64_t ranks = size();
    const uint64_t part =
        (count + ranks * kPartElements - 1) / (ranks * kPartElements) * kPartElements;
    const auto block_of = [&](uint32_t r) {
      const uint64_t begin = std::min(r * part, count);
      return Block{begin, std::min(begin + part, count) - begin};
    };
    const Block own = block_of(rank());
    LH_RETURN_IF_ERROR(ReduceParts(Op::kAllReduce, in, At(out, own.offset, dtype), block_of, dtype,
                                   reduction, queue));
    std::vector<Message> messages(size());
    for (uint32_t r = 0; r < size(); ++r) {
      const Block block = block_of(r);
      messages[r] = {.send = At(out, own.offset, dtype),
                     .send_bytes = own.count * BytesPerElement(dtype),
                     .receive = At(out, block.offset, dtype),
                     .receive_bytes = block.count * BytesPerElement(dtype)};
    }
    return Move(Op::kAllReduce, messages, queue);
  }
  Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                       Queue queue) override {
    LH_RETURN_IF_ERROR(internal::CheckArguments({Op::kReduceScatter, dtype, reduction, 0, count},
                                                size(), in, out));
    if (count == 0) return status();
    ++stats_.calls;
    return ReduceParts(
        Op::kReduceScatter, in, static_cast<std::byte*>(out),
        [&](uint32_t r) {
          return Block{r * count, count};
        },
        dtype, reduction, queue);
  }
  Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) override {
    LH_RETURN_IF_ERROR(internal::CheckArguments(
        {.op = Op::kAllGather, .dtype = dtype, .count = count}, size(), in, out));
    if (count == 0) return status();
    const uint64_t bytes = count * BytesPerElement(dtype);
    std::vector<Message> messages(size());
    for (uint32_t r = 0; r < size(); ++r) {
      messages[r] = {.send = At(in, 0, dtype),
                     .send_bytes = bytes,
                     .receive = At(out, r * count, dtype),
                     .receive_bytes = bytes};
    }
    ++stats_.calls;
    LH_RETURN_IF_ERROR(Move(Op::kAllGather, messages, queue));
    return engine_->Copy(At(out, rank() * count, dtype), in, bytes, queue);
  }
  Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                   std::span<const Block> receive, Dtype dtype, Queue queue) override {
    LH_RETURN_IF_ERROR(internal::CheckAllToAll(rank(), size(), in, send, out, receive, dtype));
    std::vector<Message> messages(size());
    for (uint32_t r = 0; r < size(); ++r) {
      messages[r] = {.send = At(in, send[r].offset, dtype),
                     .send_bytes = send[r].count * BytesPerElement(dtype),
                     .receive = At(out, receive[r].offset, dtype),
                     .receive_bytes = receive[r].count * BytesPerElement(dtype)};
    }
    ++stats_.calls;
    LH_RETURN_IF_ERROR(Move(Op::kAllToAll, messages, queue));
    return engine_->Copy(messages[rank()].receive, messages[rank()].send,
                         messages[rank()].send_bytes, queue);
  }
  Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) override {
    LH_RETURN_IF_ERROR(internal::CheckArguments(
        {.op = Op::kBroadcast, .dtype = dtype, .root = root, .count = count}, size(), data, data));
    if (count == 0) return status();
    const uint64_t bytes = count * BytesPerElement(dtype);
    std::vector<Message> messages(size());
    for (uint32_t r = 0; r < size(); ++r) {
      if (rank() == root) messages[r] = {.send = At(data, 0, dtype), .send_bytes = bytes};
      if (r == root) messages[r] = {.receive = At(data, 0, dtype), .receive_bytes = bytes};
    }
    ++stats_.calls;
    return Move(Op::kBroadcast, messages, queue);
  }
  // A word to each other rank and one from each.
  Status Barrier(Queue queue) override {
    LH_RETURN_IF_ERROR(Grow(2 * kMostRanks * sizeof(uint64_t)));
    std::vector<Message> messages(size());
    for (uint32_t r = 0; r < size(); ++r) {
      messages[r] = {.send = scratch_.back().data(),
                     .send_bytes = sizeof(uint64_t),
                     .receive = scratch_.back().data() + (1 + r) * sizeof(uint64_t),
                     .receive_bytes = sizeof(uint64_t)};
    }
    ++stats_.calls;
    return Move(Op::kBarrier, messages, queue);
  }

  Blobs* blobs() override { return this; }
  Status Exchange(Op op, const void* in, std::span<const SizedBlock> send, void* out,
                  std::span<const Block> receive, Queue queue) override {
    if (send.size() != size() || receive.size() != size()) {
      return InvalidArgument(
          "expected a block for each of {} ranks, got {} to send and {} to receive", size(),
          send.size(), receive.size());
    }
    std::vector<Message> messages(size());
    for (uint32_t r = 0; r < size(); ++r) {
      messages[r] = {.send = At(in, send[r].offset, Dtype::kBytes),
                     .send_bytes = send[r].most,
                     .size = static_cast<const uint64_t*>(send[r].size),
                     .base = send[r].base,
                     .receive = At(out, receive[r].offset, Dtype::kBytes),
                     .receive_bytes = receive[r].count,
                     .receive_any = true};
    }
    return Move(op, messages, queue);
  }
  using Blobs::sent_bytes;
  uint64_t sent_bytes(Op op) const override {
    uint64_t sent = 0;
    for (uint32_t r = 0; r < size(); ++r) {
      if (r == rank()) continue;
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        sent += WordAt(ChannelAt(rank(), r) + SentAt(op, lane)).load();
      }
    }
    return sent;
  }

  Status Prepare(Op op, uint64_t count, Dtype dtype) override {
    LH_RETURN_IF_ERROR(internal::Check({.op = op, .dtype = dtype, .count = count}, size()));
    LH_RETURN_IF_ERROR(Grow(2 * kMostRanks * sizeof(uint64_t)));
    if (op != Op::kAllReduce && op != Op::kReduceScatter) return status();
    return Grow((count + size() * kPartElements) * BytesPerElement(dtype));
  }

  Status Wait(Queue queue, Deadline deadline) override {
    Status waited = AwaitQueue({.device = device_,
                                .event = event_,
                                .communicator = *this,
                                .what = "a collective through host memory",
                                .look = [this] { static_cast<void>(fault()); }},
                               queue, deadline);
    // Ranks whose calls do not fit each other may wait for what never comes.
    LH_RETURN_IF_ERROR(fault());
    return waited;
  }
  // Ends the group: what a rank skipped is lost for its sums.
  Status fault() override {
    const uint64_t word = WordAt(kFaultAt).load();
    if (word == 0) return absl::OkStatus();
    Status other = InvalidArgument(
        "rank {} got a message from rank {} that is not as long as it expected: they "
        "made calls that do not fit each other",
        rank(), word - 1);
    Abort(other);
    return other;
  }
  void Abort(const Status& reason) override { member_->End(reason); }
  Status status() const override { return member_->status(); }
  Stats stats() const override { return stats_; }

  // Before the device has anything to do that may wait for another rank: what calls launch is
  // loaded (engine.h, LaunchOnce).
  Status Load() {
    return LaunchOnce(device_, [&](Queue queue) {
      ExchangeArgs nothing{};
      nothing.peer_count = nothing.lanes = 1;
      return Launch(nothing, queue);
    });
  }

 private:
  static std::byte* At(void* data, uint64_t element, Dtype dtype) {
    return static_cast<std::byte*>(data) + element * BytesPerElement(dtype);
  }
  static const std::byte* At(const void* data, uint64_t element, Dtype dtype) {
    return static_cast<const std::byte*>(data) + element * BytesPerElement(dtype);
  }
  static uint64_t SentAt(Op op, uint32_t lane) {
    return kSentAt + (static_cast<uint64_t>(op) * kLanes + lane) * kLineBytes;
  }
  // In this rank's own region.
  std::atomic_ref<uint64_t> WordAt(uint64_t at) const {
    return std::atomic_ref(*reinterpret_cast<uint64_t*>(regions_[rank()].host(at)));
  }
  // Scratch memory: the last buffer, of at least so many bytes. Those before it live on, because
  // what is queued may use them, and to free memory is to wait for the device.
  Status Grow(uint64_t bytes) {
    if (!scratch_.empty() && scratch_.back().size() >= bytes) return absl::OkStatus();
    const uint64_t before = scratch_.empty() ? 0 : scratch_.back().size();
    // Sizes that grow little by little take no more than twice the largest.
    StatusOr<OwnedMemory> memory = engine_->Allocate(std::max(bytes, 2 * before));
    if (!memory.ok()) memory = engine_->Allocate(bytes);
    LH_RETURN_IF_ERROR(memory.status());
    scratch_.push_back(*std::move(memory));
    return absl::OkStatus();
  }
  Status Join(std::span<const void* const> parts, uint64_t count, Dtype dtype, Reduction reduction,
              void* out, Queue queue) {
    if (reduction == Reduction::kSum) return engine_->Sum(parts, count, dtype, out, queue);
    return engine_->Largest(parts, count, dtype, out, queue);
  }

  Status ReduceWhole(const void* in, void* out, uint64_t count, Dtype dtype, Reduction reduction,
                     Queue queue) {
    const uint64_t bytes = count * BytesPerElement(dtype);
    LH_RETURN_IF_ERROR(Grow(bytes));
    std::byte* const other = scratch_.back().data();
    const Message message = {
        .send = At(in, 0, dtype), .send_bytes = bytes, .receive = other, .receive_bytes = bytes};
    LH_RETURN_IF_ERROR(Move(Op::kAllReduce, std::array{message, message}, queue));
    const std::array<const void*, 2> parts =
        rank() == 0 ? std::array<const void*, 2>{in, other} : std::array<const void*, 2>{other, in};
    return Join(parts, count, dtype, reduction, out, queue);
  }
  // Rank r's part of `in` is block_of(r).
  template <class BlockOf>
  Status ReduceParts(Op op, const void* in, std::byte* out, const BlockOf& block_of, Dtype dtype,
                     Reduction reduction, Queue queue) {
    const uint64_t own = block_of(rank()).count;
    const uint64_t own_bytes = own * BytesPerElement(dtype);
    const uint64_t stride = (own_bytes + 15) / 16 * 16;
    LH_RETURN_IF_ERROR(Grow(size() * stride));
    std::vector<Message> messages(size());
    std::vector<const void*> parts(size());
    for (uint32_t r = 0; r < size(); ++r) {
      const Block block = block_of(r);
      std::byte* const place = scratch_.back().data() + r * stride;
      messages[r] = {.send = At(in, block.offset, dtype),
                     .send_bytes = block.count * BytesPerElement(dtype),
                     .receive = place,
                     .receive_bytes = own_bytes};
      parts[r] = r == rank() ? At(in, block.offset, dtype) : place;
    }
    LH_RETURN_IF_ERROR(Move(op, messages, queue));
    return Join(parts, own, dtype, reduction, out, queue);
  }

  // One message to each other rank and one from each; this rank's own place is left out.
  Status Move(Op op, std::span<const Message> messages, Queue queue) {
    LH_RETURN_IF_ERROR(status());
    ExchangeArgs args{};
    args.kind = static_cast<uint32_t>(op);
    uint64_t known = 0;
    for (uint32_t r = 0; r < size(); ++r) {
      const Message& message = messages[r];
      if (r == rank() || (message.send_bytes == 0 && message.receive_bytes == 0)) continue;
      args.peers[args.peer_count] = PeerOf(op, r, message);
      const ExchangePeer& peer = args.peers[args.peer_count++];
      args.lanes = std::max({args.lanes, peer.send_lanes, peer.receive_lanes});
      if (message.size == nullptr) known += message.send_bytes;
    }
    if (args.peer_count > 0) LH_RETURN_IF_ERROR(Launch(args, queue));
    if (op == Op::kBarrier) return absl::OkStatus();
    stats_.tensor_bytes += known;
    stats_.sent_bytes += known;
    return absl::OkStatus();
  }
  ExchangePeer PeerOf(Op op, uint32_t r, const Message& message) {
    const uint64_t here = ChannelAt(rank(), r), there = ChannelAt(r, rank());
    const auto own = [&](uint64_t at) {
      return reinterpret_cast<uint64_t*>(regions_[rank()].dev(here + at));
    };
    const auto others = [&](uint64_t at) {
      return reinterpret_cast<const uint64_t*>(regions_[r].dev(there + at));
    };
    const Cut send = CutOf(message.send_bytes, size()),
              receive = CutOf(message.receive_bytes, size());
    return {.send_dev = message.send,
            .send_most = message.send_bytes,
            .size_dev = message.size,
            .size_base = message.base,
            .receive_dev = message.receive,
            .receive_most = message.receive_bytes,
            .receive_any = message.receive_any ? 1U : 0U,
            .peer = r,
            .send_lanes = send.lanes,
            .receive_lanes = receive.lanes,
            .send_chunk = send.chunk_bytes,
            .receive_chunk = receive.chunk_bytes,
            .send_slots = regions_[rank()].dev(here + kSlotsAt),
            .receive_slots = regions_[r].dev(there + kSlotsAt),
            .send_filled = own(kFilledAt),
            .receive_filled = others(kFilledAt),
            .send_emptied = others(kEmptiedAt),
            .receive_emptied = own(kEmptiedAt),
            .sent = own(SentAt(op, 0)),
            .steps_dev = static_cast<uint64_t*>(steps_->data_dev()) + r * kLanes * kStepWords};
  }
  Status Launch(ExchangeArgs& args, Queue queue) {
    args.slots = kSlots;
    args.line_words = kLineBytes / sizeof(uint64_t);
    args.slot_bytes = kSlotBytes;
    args.ended = reinterpret_cast<const uint64_t*>(regions_[rank()].dev(kEndedAt));
    args.fault = reinterpret_cast<uint64_t*>(regions_[rank()].dev(kFaultAt));
    return device_.Check(
        device_.table().collective_kernels->exchange(device_.index(), &args, queue.stream),
        "queueing an exchange through host memory");
  }

  const cuda::Device device_;
  const std::shared_ptr<Member> member_;
  const std::unique_ptr<Engine> engine_;
  cuda::Event event_;
  const std::vector<Region> regions_;
  std::optional<cuda::DeviceBuffer> steps_;  // [rank][lane][kStepWords]
  std::vector<OwnedMemory> scratch_;
  Stats stats_;
};

}  // namespace

StatusOr<std::unique_ptr<Communicator>> Create(std::shared_ptr<Member> member,
                                               const cuda::Device& device, Deadline deadline) {
  const uint32_t ranks = member->place().size;
  if (ranks > kMostRanks) {
    return absl::UnimplementedError(
        fmt::format("at most {} ranks exchange through host memory, got {}", kMostRanks, ranks));
  }
  LH_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::ForDevice(device));
  LH_ASSIGN_OR_RETURN(cuda::Event event, cuda::Event::Create(device));
  LH_ASSIGN_OR_RETURN(std::vector<Region> regions,
                      ShareRegions(*member, device, RegionBytes(ranks), deadline));
  const size_t step_bytes = ranks * kLanes * kStepWords * sizeof(uint64_t);
  LH_ASSIGN_OR_RETURN(cuda::DeviceBuffer steps, cuda::DeviceBuffer::Create(device, step_bytes));
  LH_RETURN_IF_ERROR(LaunchOnce(
      device, [&](Queue queue) { return engine->Zero(steps.data_dev(), step_bytes, queue); }));
  Member& self = *member;  // which the communicator keeps
  auto communicator =
      std::make_unique<MappedCommunicator>(device, std::move(member), std::move(engine),
                                           std::move(event), std::move(regions), std::move(steps));
  LH_RETURN_IF_ERROR(communicator->Load());
  // No rank's device waits for one that still loads.
  LH_RETURN_IF_ERROR(self.Tell("", deadline).status());
  return communicator;
}

}  // namespace longhaul::collective::mapped
