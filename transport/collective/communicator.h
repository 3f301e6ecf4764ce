// Exchanges among the ranks of a group inside one machine: what tensor and expert parallelism need.
//
//   LH_ASSIGN_OR_RETURN(std::shared_ptr<Member> member, Member::Join(id, {rank, size}, deadline));
//   LH_ASSIGN_OR_RETURN(auto ranks, nccl::Create(member, ...));  // or host::Create
//   LH_RETURN_IF_ERROR(ranks->AllReduce(in, out, n, Dtype::kBf16, Reduction::kSum, queue));
//   LH_RETURN_IF_ERROR(ranks->Wait(queue, deadline));
//
// Every rank has a communicator of its own, used by one thread at a time (the rank's thread or
// process); all ranks make the same calls in the same order with counts that fit each other. Abort,
// status and Wait's answer to a lost rank are thread-safe.
//
// Memory. `host` communicators take host memory; a call returns when its result is there. Device
// communicators take memory of their device; a call queues its work on `queue` and returns, and the
// arguments must live until the queue has done it. Pointers are aligned to their elements; 16 bytes
// are faster. Unless a call says where it may work in place, inputs and outputs do not overlap.
//
// Graphs. Calls on a device may be recorded in a CUDA graph (thread-local capture mode) after
// Prepare for the largest of them: then they allocate nothing and the host waits for nothing. All
// ranks record together, between two barriers.
//
// The end. A rank that is lost (its process died), fails (Abort) or does not come in time ends the
// group: every pending and later call of every rank returns kAborted with that rank's number within
// 2 s, or kDeadlineExceeded (of `host` with the ranks that were waited for: others do not know
// them). A communicator that has ended does nothing any more; make a new group.
//
// Errors before anything is sent: kInvalidArgument for counts, dtypes and pointers that cannot be;
// kUnimplemented for a dtype or a reduction that a communicator does not have. They do not end the
// group, but the other ranks wait for the call: whoever does not make it in another form aborts.
#ifndef LONGHAUL_TRANSPORT_COLLECTIVE_COMMUNICATOR_H_
#define LONGHAUL_TRANSPORT_COLLECTIVE_COMMUNICATOR_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"

namespace longhaul::collective {

enum class Dtype : uint8_t { kBytes, kF32, kF16, kBf16 };
constexpr size_t BytesPerElement(Dtype dtype) {
  if (dtype == Dtype::kBytes) return 1;
  return dtype == Dtype::kF32 ? 4 : 2;
}
std::string_view ToString(Dtype dtype);

// Of numbers, not of bytes. A maximum with a NaN is a NaN in host memory; NCCL's may be the number.
enum class Reduction : uint8_t { kSum, kMax };

// Where a device communicator queues its work: a cudaStream_t of its device. Host communicators
// ignore it.
struct Queue {
  void* stream = nullptr;
};

// Elements of a buffer: what goes to a peer, or comes from it.
struct Block {
  uint64_t offset = 0, count = 0;
};

enum class Op : uint8_t { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kBroadcast, kBarrier };
inline constexpr Op kOps[] = {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather,
                              Op::kAllToAll,  Op::kBroadcast,     Op::kBarrier};
std::string_view ToString(Op op);

// Since the communicator was made. Bytes are those that this rank sent to others.
struct Stats {
  uint64_t calls = 0;
  uint64_t tensor_bytes = 0;  // what they would have been uncompressed
  uint64_t sent_bytes = 0;    // as they went; not counted: what graphs send when they are replayed
  // Beside these, what only the device knows (Blobs), as far as it has come; replays among it.
  uint64_t blob_bytes = 0;
  // zip: elements outside the windows of exponents, to whole 16; not known of blobs.
  uint64_t escapes = 0;

  uint64_t all_sent_bytes() const { return sent_bytes + blob_bytes; }
};

// A message whose length only the device knows: `base` and what the 8-byte word at `size`, device
// memory, says when the queue comes there, at most `most`. All in bytes. `size` null: `most`.
struct SizedBlock {
  uint64_t offset = 0, most = 0;
  const void* size = nullptr;
  uint64_t base = 0;
};

// What a communicator has that needs lengths no sooner than the device knows them.
class Blobs {
 public:
  virtual ~Blobs() = default;
  // Bytes, a message to each other rank; no rank sends itself anything. `receive` says how much the
  // sender may send, its `most`, and has room for that. `in` and `out` as in AllToAllV. Counted as
  // sent in a call of `op`.
  virtual Status Exchange(Op op, const void* in, std::span<const SizedBlock> send, void* out,
                          std::span<const Block> receive, Queue queue) = 0;
  // What Exchange sent for calls of `op`, as far as the device has come, replays of graphs among
  // them. Any thread.
  virtual uint64_t sent_bytes(Op op) const = 0;
  uint64_t sent_bytes() const {
    uint64_t sent = 0;
    for (const Op op : kOps) sent += sent_bytes(op);
    return sent;
  }
};

class Communicator {
 public:
  // Ends nothing for the others if all ranks have made the same calls; waits for nothing else.
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  // Of the memory that calls take: -1 is the host's, else the CUDA device's number.
  virtual int device() const = 0;
  // "nccl 2.28.9", "host", "zip over nccl 2.28.9": for people.
  virtual std::string Describe() const = 0;

  // out[i] of every rank = reduction over ranks of in[i]. In place where in == out.
  virtual Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype,
                           Reduction reduction, Queue queue) = 0;
  // `in` has size() x count elements; this rank's `out` the reduction of part rank(). In place
  // where out is that part of `in`.
  virtual Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype,
                               Reduction reduction, Queue queue) = 0;
  // `out` has size() x count elements: the ranks' `in`, in their order. In place where `in` is this
  // rank's part of `out`.
  virtual Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) = 0;
  // Part r of `in` goes to rank r, part r of `out` comes from it; a part has `count` elements.
  virtual Status AllToAll(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue);
  // The same with a block for each rank; what a rank sends to another is what that one expects.
  // Blocks may be empty and in any order. Counts are fixed when a call is recorded in a graph.
  virtual Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                           std::span<const Block> receive, Dtype dtype, Queue queue) = 0;
  // `data` of every rank = that of rank `root`.
  virtual Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) = 0;
  // No rank's queue goes on before every rank's has come here.
  virtual Status Barrier(Queue queue) = 0;

  // Null: every length has to be known on the host. Lives as long as the communicator.
  virtual Blobs* blobs() { return nullptr; }

  // Takes the memory that calls of `op` with up to `count` elements (those of the largest tensor of
  // the call) need, so that they allocate nothing.
  virtual Status Prepare(Op op, uint64_t count, Dtype dtype) = 0;

  // Blocks until the queue has done what it was given. Not OK: the group has ended, or ends now
  // because `deadline` passed; or what arrived since the last Wait is not whole (zip/factory.h).
  // Not while recording.
  virtual Status Wait(Queue queue, Deadline deadline) = 0;
  // What arrived since the last Wait or fault() and was not whole or not what was expected, as far
  // as the device has come; OK: nothing was. Waits for nothing. For those who never Wait, because
  // they wait for the queue by other means.
  virtual Status fault() { return absl::OkStatus(); }
  // Ends the group for all ranks; `reason` is what they are told. Any thread; idempotent.
  virtual void Abort(const Status& reason) = 0;
  // OK, or why the group has ended. Any thread.
  virtual Status status() const = 0;

  virtual Stats stats() const = 0;
};

}  // namespace longhaul::collective

#endif  // LONGHAUL_TRANSPORT_COLLECTIVE_COMMUNICATOR_H_
