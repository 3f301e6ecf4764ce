// The interface of collectives among the ranks of one machine, for tensor and expert parallelism.
//
//   LH_ASSIGN_OR_RETURN(std::shared_ptr<Member> member, Member::Join(id, {rank, size}, deadline));
//   LH_ASSIGN_OR_RETURN(auto ranks, nccl::Create(member, ...));  // or host::Create
//   LH_RETURN_IF_ERROR(ranks->AllReduce(in, out, n, Dtype::kBf16, Reduction::kSum, queue));
//   LH_RETURN_IF_ERROR(ranks->Wait(queue, deadline));
//
// Every rank has its own communicator, used by one thread at a time. All ranks make the same calls
// in the same order, with matching counts. Abort and status may be called on any thread, and a lost
// rank ends every Wait.
//
// Memory. `host` communicators take host memory, and a call returns when its result is there.
// Device communicators take memory of their device: a call queues its work on `queue` and returns,
// and the arguments must live until the queue has done it. Pointers must be aligned to elements; 16
// bytes are faster. Inputs and outputs must not overlap, unless a call says that it may work in
// place.
//
// CUDA graphs. Calls on a device may be recorded (thread-local capture mode) after Prepare for the
// largest of them. They then allocate nothing and never block the host. All ranks record together,
// between two barriers.
//
// End of the group. If a rank's process dies, if a rank fails (Abort), or if it is late, the group
// ends: all pending and later calls of all ranks return kAborted with that rank's number within 2
// s, or kDeadlineExceeded (`host` names the ranks that it waited for; others do not know them). An
// ended communicator cannot be used again; make a new group.
//
// Errors before anything is sent: kInvalidArgument for impossible counts, dtypes and pointers;
// kUnimplemented for a dtype or reduction that the communicator lacks. They do not end the group,
// but the other ranks wait for the call: make it in another form, or abort.
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

// Numbers only, not kBytes. In host memory the maximum with a NaN is NaN; NCCL may give the number
// instead.
enum class Reduction : uint8_t { kSum, kMax };

// The stream on which a device communicator queues its work: a cudaStream_t of its device. Host
// communicators ignore it.
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
  // Bytes sent by Blobs, counted when the device has sent them. Replays of CUDA graphs count.
  uint64_t blob_bytes = 0;
  // zip: elements outside the windows of exponents, rounded up to 16. Not counted for blobs.
  uint64_t escapes = 0;

  uint64_t all_sent_bytes() const { return sent_bytes + blob_bytes; }
};

// A message whose length only the device knows: `base` plus the value of the 8-byte word at `size`,
// at most `most`, all in bytes. `size` is in device memory; the word is read when the queue reaches
// the call. `size` null: the length is `most`.
struct SizedBlock {
  uint64_t offset = 0, most = 0;
  const void* size = nullptr;
  uint64_t base = 0;
};

// Implemented by communicators that can send messages whose length the host does not know.
class Blobs {
 public:
  virtual ~Blobs() = default;
  // Sends one message to each other rank, and none to itself. `receive` gives the `most` of each
  // sender, and has room for as many bytes. `in` and `out` are those of AllToAllV. Counts as a call
  // of `op`.
  virtual Status Exchange(Op op, const void* in, std::span<const SizedBlock> send, void* out,
                          std::span<const Block> receive, Queue queue) = 0;
  // Bytes that Exchange sent for calls of `op`, as far as the device has come, replays of CUDA
  // graphs included. Any thread.
  virtual uint64_t sent_bytes(Op op) const = 0;
  uint64_t sent_bytes() const {
    uint64_t sent = 0;
    for (const Op op : kOps) sent += sent_bytes(op);
    return sent;
  }
};

class Communicator {
 public:
  // The group goes on if all ranks have made the same calls. Waits at most for calls in the queue.
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  // The device whose memory calls take: -1 is the host, else the CUDA device's number.
  virtual int device() const = 0;
  // For people: "nccl 2.28.9", "host", "zip over nccl 2.28.9".
  virtual std::string Describe() const = 0;

  // Sets out[i] on every rank to the reduction over ranks of in[i]. In place if in == out.
  virtual Status AllReduce(const void* in, void* out, uint64_t count, Dtype dtype,
                           Reduction reduction, Queue queue) = 0;
  // Reduces; rank r gets part r. `in`: size() x count elements; `out`: count. In place if `out` is
  // this rank's part of `in`.
  virtual Status ReduceScatter(const void* in, void* out, uint64_t count, Dtype dtype,
                               Reduction reduction, Queue queue) = 0;
  // Gathers the ranks' `in`, in order. `out`: size() x count elements. In place if `in` is this
  // rank's part of `out`.
  virtual Status AllGather(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue) = 0;
  // Sends part r of `in` to rank r, and receives part r of `out` from it. Each part has `count`
  // elements.
  virtual Status AllToAll(const void* in, void* out, uint64_t count, Dtype dtype, Queue queue);
  // AllToAll with a block for each rank; a receiver's block must match the sender's. Blocks may be
  // empty and in any order. A CUDA graph fixes the counts.
  virtual Status AllToAllV(const void* in, std::span<const Block> send, void* out,
                           std::span<const Block> receive, Dtype dtype, Queue queue) = 0;
  // Copies `data` of rank `root` to all ranks.
  virtual Status Broadcast(void* data, uint64_t count, Dtype dtype, uint32_t root, Queue queue) = 0;
  // Makes every rank's queue wait until the queues of all ranks have reached the barrier.
  virtual Status Barrier(Queue queue) = 0;

  // Null if lengths must be known on the host. Lives as long as the communicator.
  virtual Blobs* blobs() { return nullptr; }

  // Allocates what calls of `op` need with up to `count` elements (of the call's largest tensor),
  // so that these calls allocate nothing.
  virtual Status Prepare(Op op, uint64_t count, Dtype dtype) = 0;

  // Blocks until the queue is done; must not be called while a graph is recorded. Errors: the group
  // has ended, or ends now because `deadline` passed; or data that arrived since the last Wait is
  // incomplete (zip/factory.h).
  virtual Status Wait(Queue queue, Deadline deadline) = 0;
  // For callers that wait for the queue by other means and never call Wait: an error if data that
  // arrived since the last Wait or fault() was incomplete or unexpected, as far as the device has
  // come. Never blocks.
  virtual Status fault() { return absl::OkStatus(); }
  // Ends the group for all ranks, which are told `reason`. Any thread; idempotent.
  virtual void Abort(const Status& reason) = 0;
  // OK, or why the group has ended. Any thread.
  virtual Status status() const = 0;

  virtual Stats stats() const = 0;
};

}  // namespace longhaul::collective
