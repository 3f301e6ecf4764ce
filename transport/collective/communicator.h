// The interface of collectives among the ranks of one machine, for tensor and expert parallelism.
//
//   LH_ASSIGN_OR_RETURN(std::shared_ptr<Member> member, Member::Join(id, {rank, size}, deadline));
//   LH_ASSIGN_OR_RETURN(auto ranks, nccl::Create(member, ...));  // or host::Create
//   LH_RETURN_IF_ERROR(ranks->AllReduce(in, out, n, Dtype::kBf16, Reduction::kSum, queue));
//   LH_RETURN_IF_ERROR(ranks->Wait(queue, deadline));
//
// Every rank has its own communicator, used by one thread at a time. All ranks make the same calls
// in the same order, with matching counts. Any thread may call Abort and status. If a rank is lost,
// every rank's Wait returns an error.
//
// Memory. `host` communicators take host memory, and a call returns when its result is complete.
// Device communicators take memory of their device. Their calls queue work on `queue` and return;
// the arguments must stay valid until the queue has done this work. Pointers must be aligned to
// their element type; 16 bytes are faster. Inputs and outputs must not overlap, unless a call says
// that it works in place.
//
// CUDA graphs. A device communicator's calls may be recorded (thread-local capture mode) after
// Prepare for the largest of them. Recorded calls allocate nothing and never block the host. All
// ranks record at the same time, between two barriers.
//
// End of the group. The group ends if a rank's process dies, if a rank calls Abort, or if a rank
// waits for others longer than its time limit. Then all pending and later calls of all ranks return
// kAborted, with that rank's number, within 2 s. Only the call whose time limit passed returns
// kDeadlineExceeded; in `host` its message names the late ranks. An ended communicator cannot be
// used again; make a new group.
//
// A call that is refused sends nothing: kInvalidArgument for impossible counts, dtypes and
// pointers; kUnimplemented for a dtype or reduction that the communicator lacks. The group does not
// end, but the other ranks now wait for this rank: make the call in another form, or abort.
#pragma once

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

// Not for kBytes. If one of the values is NaN, the maximum is NaN; only NCCL may return a number.
enum class Reduction : uint8_t { kSum, kMax };

// The stream on which a device communicator queues its work: a cudaStream_t of its device. Null:
// the device's default stream. Host communicators ignore the queue.
struct Queue {
  void* stream = nullptr;
};

// A range of elements of a buffer, sent to or received from one peer.
struct Block {
  uint64_t offset = 0, count = 0;
};

enum class Op : uint8_t { kAllReduce, kReduceScatter, kAllGather, kAllToAll, kBroadcast, kBarrier };
inline constexpr Op kOps[] = {Op::kAllReduce, Op::kReduceScatter, Op::kAllGather,
                              Op::kAllToAll,  Op::kBroadcast,     Op::kBarrier};
std::string_view ToString(Op op);

// Totals since the communicator was made. Bytes count what this rank sent to others.
struct Stats {
  uint64_t calls = 0;
  uint64_t tensor_bytes = 0;  // before compression
  uint64_t sent_bytes = 0;    // as sent; replays of CUDA graphs are not counted
  // Bytes of messages with a SizedBlock::size, counted when the device has sent them. Includes
  // replays of CUDA graphs.
  uint64_t blob_bytes = 0;
  // zip only: the number of escapes (zip/factory.h), rounded up to 16 for each blob. Counted only
  // if the host learns the blobs' sizes.
  uint64_t escapes = 0;

  uint64_t all_sent_bytes() const { return sent_bytes + blob_bytes; }
};

// A message whose length only the device knows: `base` plus the 8-byte word at `size`, at most
// `most`. All numbers are bytes. `size` points into device memory, and the word is read when the
// queue reaches the call. If `size` is null, the length is `most`.
struct SizedBlock {
  uint64_t offset = 0, most = 0;
  const void* size = nullptr;
  uint64_t base = 0;
};

// Implemented by communicators that can send messages whose length the host does not know.
class Blobs {
 public:
  virtual ~Blobs() = default;
  // Sends one message to each other rank and receives one from each. `send` and `receive` have one
  // entry for each rank, with offsets in bytes from `in` and `out`; this rank's own entry is
  // ignored. receive[r] must have room for the `most` of sender r. `op` only says for which
  // operation the bytes are counted.
  virtual Status Exchange(Op op, const void* in, std::span<const SizedBlock> send, void* out,
                          std::span<const Block> receive, Queue queue) = 0;
  // Returns the bytes of messages with a SizedBlock::size that Exchange has sent for `op`. Counts
  // the bytes that the device has sent so far, replays of CUDA graphs included. Any thread.
  virtual uint64_t sent_bytes(Op op) const = 0;
  uint64_t sent_bytes() const {
    uint64_t sent = 0;
    for (const Op op : kOps) sent += sent_bytes(op);
    return sent;
  }
};

class Communicator {
 public:
  // May wait for this rank's queued calls. The group does not end if all ranks have made the same
  // calls.
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  // The device whose memory the calls take: a CUDA device's number, or -1 for the host.
  virtual int device() const = 0;
  // For people: "nccl 2.28.9", "host", "zip over nccl 2.28.9".
  virtual std::string Describe() const = 0;

  // Sets out[i] on every rank to the sum or maximum of in[i] over all ranks. Works in place if
  // `out` is `in`.
  virtual Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype,
                           Reduction reduction, Queue queue) = 0;
  // Reduces like AllReduce, but rank r gets only part r of the result. `in`: size() x count
  // elements; `out`: count. Works in place if `out` is this rank's part of `in`.
  virtual Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype,
                               Reduction reduction, Queue queue) = 0;
  // Gathers the `in` of all ranks, in the order of ranks. `in`: count elements; `out`: size() x
  // count. Works in place if `in` is this rank's part of `out`.
  virtual Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) = 0;
  // Sends part r of `in` to rank r, and receives part r of `out` from rank r. Each part has `count`
  // elements.
  virtual Status AllToAll(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue);
  // AllToAll with parts of any size: send[r] goes to rank r, and receive[r] comes from rank r. Both
  // spans have size() entries, and are used only during the call. A receiver's block must be as
  // long as the sender's. Blocks may be empty and in any order. A CUDA graph fixes the counts.
  virtual Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                           std::span<const Block> receive, Dtype dtype, Queue queue) = 0;
  // Copies `data` of rank `root` to all ranks.
  virtual Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) = 0;
  // Makes every rank's queue wait until the queues of all ranks have reached the barrier.
  virtual Status Barrier(Queue queue) = 0;

  // Returns the interface for messages whose length only the device knows. Null: this communicator
  // has none. The result lives as long as this object.
  virtual Blobs* blobs() { return nullptr; }

  // Allocates the memory that later calls of `op` need, so that they allocate nothing. `count`: the
  // largest number of elements that an input or output of these calls has. kResourceExhausted: the
  // device has not enough memory.
  virtual Status Prepare(Op op, uint64_t count, Dtype dtype) = 0;

  // Blocks until the queue is done. Must not be called while a graph is recorded. kAborted: the
  // group has ended. kDeadlineExceeded: `deadline` passed, and the group ends. The errors of
  // fault().
  virtual Status Wait(Queue queue, Deadline deadline) = 0;
  // For callers that wait for the queue by other means and never call Wait. Checks the data that
  // arrived since the last Wait or fault(), for calls that the device has already done.
  // kOutOfRange: data was cut (zip/factory.h). kDataLoss: compressed data is invalid.
  // kInvalidArgument: ranks made calls that do not match; the group ends. Never blocks.
  virtual Status fault() { return absl::OkStatus(); }
  // Ends the group for all ranks; their errors contain `reason`. Any thread; idempotent.
  virtual void Abort(const Status& reason) = 0;
  // Returns OK, or kAborted with the reason why the group has ended. Any thread.
  virtual Status status() const = 0;

  virtual Stats stats() const = 0;
};

}  // namespace longhaul::collective
